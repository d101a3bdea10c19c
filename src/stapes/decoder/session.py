"""A session: one sequence, its cache, and what may be done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.network import Want
from stapes.decoder.prompt import CheckedPrompt
from stapes.errors import CapacityError
from stapes.graph import KvCacheLike
from stapes.system import available_memory_bytes

if TYPE_CHECKING:
    from stapes.decoder.decoder import Decoder

#: Rows of one prefill run: bounds the working memory, and is enough to keep the arithmetic busy.
PREFILL_ROWS = 256

#: Results of picked rows: greedy ids [picked] i32, or logits [picked, logits_size] f32.
Rows = NDArray[np.int32] | NDArray[np.float32]


class Session:
    """One sequence. Not for use from two threads at once; sessions of one decoder may be.

    The cache grows in buckets of 512 positions and keeps what it holds; what does not fit raises
    CapacityError and leaves the session as it was.
    """

    def __init__(self, decoder: Decoder, cache: KvCacheLike) -> None:
        self.decoder = decoder
        self._cache = cache
        self._no_values = np.zeros((0, decoder.spec.hidden_size), np.float32)

    @property
    def length(self) -> int:
        """Positions that the cache holds."""
        return self._cache.length

    @property
    def capacity(self) -> int:
        """Positions for which the cache has room."""
        return self._cache.capacity

    def truncate(self, length: int) -> None:
        """Forget all positions from `length` on."""
        self._cache.truncate(length)

    def clone(self) -> Session:
        """A session with the same content, which then goes its own way."""
        return Session(self.decoder, self._cache.clone())

    def prefill(
        self, prompt: CheckedPrompt, picked: NDArray[np.int32] | None = None, want: Want = "next"
    ) -> Rows:
        """Read a prompt behind what the cache holds.

        Args:
            prompt: ids and injected rows; position 0 of the prompt is position `length`.
            picked: prompt rows whose results are wanted, ascending; None takes the last one.
            want: greedy ids or logits.

        Returns:
            [picked] i32 greedy ids (-1 for a row with a NaN), or logits [picked, logits_size] f32.
        """
        self._reserve(self.length + len(prompt), len(prompt.index))
        rows = np.array([len(prompt) - 1], np.int32) if picked is None else picked
        results = [
            self._run_block(prompt, start, min(start + PREFILL_ROWS, len(prompt)), rows, want)
            for start in range(0, len(prompt), PREFILL_ROWS)
        ]
        return cast("Rows", np.concatenate(results))

    def _run_block(
        self, prompt: CheckedPrompt, start: int, end: int, picked: NDArray[np.int32], want: Want
    ) -> Rows:
        first, last = np.searchsorted(prompt.index, [start, end])
        return self._run(
            prompt.ids[start:end],
            prompt.values[first:last],
            prompt.index[first:last] - np.int32(start),
            picked[(picked >= start) & (picked < end)] - np.int32(start),
            want,
        )

    def step(self, token_id: int, want: Want = "next") -> Rows:
        """Read one token; returns what `prefill` returns for it."""
        self._reserve(self.length + 1, 0)
        zero = np.zeros(1, np.int32)
        return self._run(np.array([token_id], np.int32), self._no_values, zero[:0], zero, want)

    def _run(
        self,
        ids: NDArray[np.int32],
        values: NDArray[np.float32],
        index: NDArray[np.int32],
        picked: NDArray[np.int32],
        want: Want,
    ) -> Rows:
        positions = np.arange(self.length, self.length + ids.size, dtype=np.int32)
        sequences = np.zeros(ids.size, np.int32)
        return self.decoder.run(
            ids, positions, sequences, [self._cache], values, index, picked, want
        )

    def _reserve(self, positions: int, injected: int) -> None:
        """Make room for `positions` in all, or raise CapacityError with the numbers."""
        if positions <= self.capacity:
            return
        needed = -(-positions // 512) * self._cache.page_bytes
        missing = needed - self.capacity // 512 * self._cache.page_bytes
        limit = self.decoder.memory_limit_bytes
        available = available_memory_bytes() if limit is None else limit - (needed - missing)
        try:
            if available is not None and missing > available:
                raise MemoryError
            self._cache.reserve(positions)
        except MemoryError:
            have = "less" if available is None else f"{max(0, available):,}"
            raise CapacityError(
                f"A KV cache of {positions} positions ({injected} of them injected) needs "
                f"{missing:,} more bytes, but {have} are available."
            ) from None
