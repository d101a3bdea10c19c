"""The aligner's prompt: the audio, then each word with two marks behind it, and nothing else.

No chat template: the few tokens of one in front of the audio move the times by one class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.decoder import Injection, Prompt
from stapes.errors import ConfigError
from stapes.models.qwen3_asr.aligner.config import AlignerConfig
from stapes.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class AlignerPrompt:
    """A prompt and its marks.

    Attributes:
        prompt: ids, with the embeddings of the audio injected.
        marks: [2 * words] i32, the rows of the marks: start and end of each word.
    """

    prompt: Prompt
    marks: NDArray[np.int32]


class AlignerPrompts:
    """Builds prompts. All ids come from the checkpoint's files.

    Raises:
        ConfigError: a control token is missing, the embedding has no row for it, or config.json and
            tokenizer disagree.
    """

    def __init__(self, tokenizer: Tokenizer, config: AlignerConfig) -> None:
        self._tokenizer = tokenizer
        self._audio_start = tokenizer.token_id("<|audio_start|>")
        self._audio_end = tokenizer.token_id("<|audio_end|>")
        self._audio_pad = _agreed(
            tokenizer, "<|audio_pad|>", "audio_token_id", config.audio_token_id
        )
        self._mark = _agreed(
            tokenizer, "<timestamp>", "timestamp_token_id", config.timestamp_token_id
        )
        highest = max(self._audio_start, self._audio_end, self._audio_pad, self._mark)
        if highest >= config.decoder.vocab_size:
            raise ConfigError(
                f"The tokenizer's control tokens reach up to {highest}, but config.json's "
                f"vocab_size is {config.decoder.vocab_size}."
            )

    def build(self, embeddings: NDArray[np.float32], words: Sequence[str]) -> AlignerPrompt:
        """The prompt of one recording.

        Args:
            embeddings: [tokens, hidden] f32.
            words: what is spoken, letters and digits; control tokens in it are plain text.

        Raises:
            RequestError: the tokenizer cannot write a word.
        """
        count = embeddings.shape[0]
        ids = [self._audio_start, *[self._audio_pad] * count, self._audio_end]
        marks: list[int] = []
        for word in words:
            ids += self._tokenizer.encode(word)
            marks += [len(ids), len(ids) + 1]
            ids += [self._mark, self._mark]
        prompt = Prompt(ids, Injection(embeddings, np.arange(1, 1 + count)))
        return AlignerPrompt(prompt, np.array(marks, np.int32))


def _agreed(tokenizer: Tokenizer, name: str, key: str, configured: int) -> int:
    found = tokenizer.token_id(name)
    if found != configured:
        raise ConfigError(
            f"config.json's {key} is {configured}, but the tokenizer's {name} is {found}."
        )
    return found
