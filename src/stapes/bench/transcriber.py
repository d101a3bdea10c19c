"""A transcriber with random weights, whose answers are ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from stapes.bench.asr import PROMPT_START, AsrBench, build, prompt_ids
from stapes.bench.synthetic import SYNTHETIC
from stapes.decoder import Injection, Prompt
from stapes.models.qwen3_asr.model import Transcriber
from stapes.models.qwen3_asr.postprocess import Answer
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
        asr: size, formats and threads.
    """

    def __init__(self, asr: AsrBench) -> None:
        networks, load_s = build(asr)
        tokenizer = cast("Tokenizer", Numbers())
        super().__init__(asr.synthetic, SYNTHETIC[asr.synthetic], tokenizer, networks, load_s)

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
