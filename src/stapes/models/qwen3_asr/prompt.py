"""The prompt of a transcription, composed of ids so that no text can forge a control token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.decoder import Injection, Prompt
from stapes.errors import ConfigError
from stapes.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ControlTokens:
    """Ids of the control tokens, all taken from the checkpoint's files."""

    im_start: int
    im_end: int
    audio_start: int
    audio_end: int
    audio_pad: int
    asr_text: int


def control_tokens(tokenizer: Tokenizer, audio_token_id: int, vocab_size: int) -> ControlTokens:
    """Look the control tokens up.

    Raises:
        ConfigError: a token is missing, the embedding has no row for it, or config.json and
            tokenizer disagree on the audio token.
    """
    audio_pad = tokenizer.token_id("<|audio_pad|>")
    if audio_pad != audio_token_id:
        raise ConfigError(
            f"config.json's audio_token_id is {audio_token_id}, but the tokenizer's <|audio_pad|> "
            f"is {audio_pad}."
        )
    control = ControlTokens(
        im_start=tokenizer.token_id("<|im_start|>"),
        im_end=tokenizer.token_id("<|im_end|>"),
        audio_start=tokenizer.token_id("<|audio_start|>"),
        audio_end=tokenizer.token_id("<|audio_end|>"),
        audio_pad=audio_pad,
        asr_text=tokenizer.token_id("<asr_text>"),
    )
    highest = max(vars(control).values())
    if highest >= vocab_size:
        raise ConfigError(
            f"The tokenizer's control tokens reach up to {highest}, but config.json's vocab_size "
            f"is {vocab_size}."
        )
    return control


class PromptBuilder:
    """Builds prompts: the context in the system turn, the audio in the user turn."""

    def __init__(self, tokenizer: Tokenizer, control: ControlTokens) -> None:
        self._tokenizer = tokenizer
        self.control = control

    def build(
        self, embeddings: NDArray[np.float32], context: str = "", language: str | None = None
    ) -> Prompt:
        """The prompt of one piece of audio.

        Args:
            embeddings: [tokens, hidden] f32.
            context: plain text for the system turn.
            language: canonical name to force, or None.
        """
        c, encode = self.control, self._tokenizer.encode
        before = [c.im_start, *encode(f"system\n{context}"), c.im_end, *encode("\n")]
        before += [c.im_start, *encode("user\n"), c.audio_start]
        after = [c.audio_end, c.im_end, *encode("\n"), c.im_start]
        if language is None:
            after += encode("assistant\n")
        else:
            after += [*encode(f"assistant\nlanguage {language}"), c.asr_text]
        count = embeddings.shape[0]
        positions = np.arange(len(before), len(before) + count)
        return Prompt([*before, *[c.audio_pad] * count, *after], Injection(embeddings, positions))
