"""What the autoregressive stage reads: a chat of one turn, whose answer has been begun.

    <|im_start|>system
    {instruction}<|im_end|>
    <|im_start|>user
    {text of the style} {text}<|im_end|>
    <|im_start|>assistant
    [<|prosody_start|>{prosody of the style}{prosody}<|prosody_end|>]<|content_style_start|>{style}

The model goes on with the codes of the text, as if one recording of both texts were written down.
"""

from __future__ import annotations

from dataclasses import dataclass

from stapes.errors import RequestError
from stapes.models.vevo2.autoregressive.tokens import Codes, CodeTokens
from stapes.models.vevo2.tasks import Task, find_task
from stapes.text.tokenizer import Tokenizer

# Word for word what the model was trained with.
INSTRUCTION = "User will provide you with a text. Please vocalize it with natural expression."
PROSODY_INSTRUCTION = (
    "User will provide you with a text. Please first generate a good prosodic instruction, then "
    "vocalize the text based on it."
)


@dataclass(frozen=True, eq=False)
class CodeRequest:
    """What is to be written as content-style codes.

    Attributes:
        text: what is said or sung; names of control tokens in it are text like any other.
        task: one of `tasks.TASKS` that the autoregressive stage is used for.
        style_text: what is said or sung in the style reference; may be unknown ("" or None).
        style_codes: content-style codes of the style reference.
        style_prosody: its prosody codes; only for tasks with prosody.
        prosody_codes: prosody codes to follow; only for tasks with prosody.

    Raises:
        RequestError: a part that the task needs is missing, or one is there that it has no use for.
    """

    text: str
    task: str = "text_to_speech"
    style_text: str | None = None
    style_codes: Codes = ()
    style_prosody: Codes = ()
    prosody_codes: Codes = ()

    def __post_init__(self) -> None:
        task = find_task(self.task)
        if not task.autoregressive:
            raise RequestError(
                f"{self.task} writes no codes: those of its source are used as they are."
            )
        _check_text("text", self.text)
        if not self.text.strip():
            raise RequestError(f"The text of {self.task} is empty.")
        _check_text("style_text", self.style_text or "")
        self._check_style(task)
        self._check_prosody(task)

    def _check_style(self, task: Task) -> None:
        given = len(self.style_codes)
        if task.style and not given:
            raise RequestError(f"{self.task} needs style_codes, those of the {task.style} sound.")
        if (self.style_text or "").strip() and not given:  # it would be read aloud
            raise RequestError(
                f"style_text has {len(self.style_text or '')} characters, but there are no "
                "style_codes that they belong to."
            )

    def _check_prosody(self, task: Task) -> None:
        style, asked = len(self.style_prosody), len(self.prosody_codes)
        if task.prosody is None and style + asked:
            raise RequestError(
                f"{self.task} follows no prosody, but {style + asked} prosody codes are given."
            )
        if task.prosody and not asked:
            raise RequestError(
                f"{self.task} needs prosody_codes, those of the {task.prosody} sound."
            )
        if task.prosody and bool(style) != bool(len(self.style_codes)):
            raise RequestError(
                f"{len(self.style_codes)} style_codes and {style} style_prosody codes: {self.task} "
                "takes both of one sound, or neither."
            )

    @property
    def user_text(self) -> str:
        """The text of the user's turn: it begins with a space when there is no style's."""
        return f"{self.style_text or ''} {self.text}"


def prompt_ids(request: CodeRequest, tokenizer: Tokenizer, tokens: CodeTokens) -> list[int]:
    """The ids of a request's prompt.

    Raises:
        RequestError: codes are no whole numbers or out of their range, or text cannot be written.
    """
    has_prosody = find_task(request.task).prosody is not None
    instruction = PROSODY_INSTRUCTION if has_prosody else INSTRUCTION
    start, end = tokens.turn_start, tokens.turn_end
    ids = [
        *(start, *tokenizer.encode(f"system\n{instruction}"), end, *tokenizer.encode("\n")),
        *(start, *tokenizer.encode(f"user\n{request.user_text}"), end, *tokenizer.encode("\n")),
        *(start, *tokenizer.encode("assistant\n")),
    ]
    if has_prosody:
        style = tokens.prosody_ids(request.style_prosody, "style's")
        asked = tokens.prosody_ids(request.prosody_codes, "asked")
        ids += [tokens.prosody_start, *style, *asked, tokens.prosody_end]
    style = tokens.content_style_ids(request.style_codes, "style's")
    return [*ids, tokens.content_style_start, *style]


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise RequestError(f"{name} must be text, not {type(text).__name__}.")
