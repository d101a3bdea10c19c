"""The prompt of a transcription: one user turn with the audio and a fixed instruction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stapes.decoder import Injection, Prompt
from stapes.errors import ConfigError, RequestError
from stapes.models.qwen3_asr.audio8.assumptions import ASSUMED
from stapes.text.tokenizer import Tokenizer


class Audio8Prompts:
    """Builds prompts. All ids come from the checkpoint's tokenizer.

    Raises:
        ConfigError: a control token is missing, the embedding has no row for it, or config.json
            and tokenizer disagree on the audio token.
    """

    def __init__(self, tokenizer: Tokenizer, audio_token_id: int, vocab_size: int) -> None:
        find = tokenizer.token_id
        self.audio = find(ASSUMED.audio)
        if self.audio != audio_token_id:
            raise ConfigError(
                f"config.json's audio_token_id is {audio_token_id}, but the tokenizer's "
                f"{ASSUMED.audio} is {self.audio}."
            )
        self._before = [find(ASSUMED.user), find(ASSUMED.audio_begin)]
        instruction = tokenizer.encode(ASSUMED.instruction)
        self._after = [find(ASSUMED.audio_end), *instruction, find(ASSUMED.assistant)]
        highest = max(self.audio, *self._before, *self._after)
        if highest >= vocab_size:
            raise ConfigError(
                f"The prompt's tokens reach up to {highest}, but config.json's vocab_size is "
                f"{vocab_size}."
            )

    def build(
        self, embeddings: NDArray[np.float32], context: str = "", language: str | None = None
    ) -> Prompt:
        """The prompt of one piece of audio, whose embeddings are [tokens, hidden] f32.

        Raises:
            RequestError: a context or a language, for which the prompt has no place.
        """
        if context:
            raise RequestError(
                f"Audio8-ASR takes no context, but one of {len(context)} characters was given."
            )
        if language is not None:
            raise RequestError(
                f"Audio8-ASR finds the language by itself; it cannot be told {language}."
            )
        count, before = embeddings.shape[0], self._before
        positions = np.arange(len(before), len(before) + count)
        ids = [*before, *[self.audio] * count, *self._after]
        return Prompt(ids, Injection(embeddings, positions))
