"""From the ids of an answer to content-style codes."""

from __future__ import annotations

from dataclasses import dataclass, field

from stapes.decoder import FinishReason
from stapes.errors import ModelError
from stapes.models.vevo2.autoregressive.tokens import CONTENT_STYLE_HZ, CodeTokens
from stapes.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class GeneratedCodes:
    """The content-style codes of one answer.

    Attributes:
        codes: 0 to 16383, 12.5 of them a second.
        finish_reason: "stop" (the model ended its turn), "length" (max_new_tokens are there: the
            text may not be finished), "cancelled".
        token_ids: all new ids, what ended the codes included, the end of the turn not.
        prompt_tokens: length of the prompt.
        reused_tokens: how many of its first tokens were in the cache already.
        prefill_s, decode_s: seconds to the first id, and for the rest.
    """

    codes: tuple[int, ...]
    finish_reason: FinishReason
    token_ids: tuple[int, ...]
    prompt_tokens: int
    reused_tokens: int = field(default=0, compare=False)
    prefill_s: float = field(default=0.0, compare=False)
    decode_s: float = field(default=0.0, compare=False)

    @property
    def seconds(self) -> float:
        """Length of the sound that the codes stand for."""
        return len(self.codes) / CONTENT_STYLE_HZ


class CodeReader:
    """Takes the ids of one answer as they come, and keeps its codes.

    Codes come up to `<|content_style_end|>`, which does not end the answer; among them nothing else
    may come. What comes behind it is of no interest, codes excepted: the publisher's code takes the
    codes wherever they stand.

    Attributes:
        codes: so far.
    """

    def __init__(self, tokens: CodeTokens, tokenizer: Tokenizer) -> None:
        self.codes: list[int] = []
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._ids = 0
        self._ended = False

    def feed(self, token_id: int) -> None:
        """Take the next id. ModelError for one that has no place among codes."""
        code = self._tokens.code_of.get(token_id)
        if code is not None:
            self.codes.append(code)
        elif token_id == self._tokens.content_style_end:
            self._ended = True
        elif not self._ended:
            name = self._tokenizer.decode([token_id], skip_special=False)
            raise ModelError(
                f"New token {self._ids} is {name!r} (id {token_id}), no code of sound, "
                f"behind {len(self.codes)} codes; codes_only rules such ids out."
            )
        self._ids += 1
