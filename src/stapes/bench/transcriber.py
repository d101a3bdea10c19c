"""A transcriber with random weights, whose answers are ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from stapes.bench.asr import PROMPT_START, build_networks, prompt_ids
from stapes.decoder import Injection, Prompt
from stapes.models.qwen3_asr.config import Qwen3AsrConfig
from stapes.models.qwen3_asr.model import Transcriber
from stapes.models.qwen3_asr.postprocess import Answer
from stapes.options import RuntimeOptions
from stapes.text.tokenizer import Tokenizer


class Numbers:
    """In place of a tokenizer: every id is a word, its number."""

    def token_bytes(self, token_id: int) -> bytes:
        """A space and the number."""
        return b" %d" % token_id

    def decode(self, ids: Iterable[int]) -> str:
        """The numbers."""
        return "".join(f" {token_id}" for token_id in ids)


class SyntheticTranscriber(Transcriber):
    """A model of a published size, built in memory; see `bench.synthetic`.

    Args:
        name: of the size.
        config: of `SYNTHETIC`, or one that differs in what it does with ids.
        runtime: how it is held and run.
        instruction_set: of the core.
    """

    def __init__(
        self, name: str, config: Qwen3AsrConfig, runtime: RuntimeOptions, instruction_set: str
    ) -> None:
        networks, load_s = build_networks(config, runtime, instruction_set)
        super().__init__(name, config, cast("Tokenizer", Numbers()), networks, load_s)

    def build_prompt(
        self, embeddings: NDArray[np.float32], context: str, forced: str | None
    ) -> Prompt:
        """The prompt of an empty context."""
        count = embeddings.shape[0]
        positions = np.arange(len(PROMPT_START), len(PROMPT_START) + count)
        ids = prompt_ids(count, self.config.audio_token_id)
        return Prompt(ids, Injection(embeddings, positions))

    def read_answer(self, token_ids: Sequence[int], forced: str | None) -> Answer:
        """The ids as text."""
        return Answer(self.tokenizer.decode(token_ids).strip(), None, False)
