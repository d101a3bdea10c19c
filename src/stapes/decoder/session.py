"""A session: one sequence, its cache, and what may be done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.network import Want
from stapes.decoder.prompt import CheckedPrompt
from stapes.decoder.record import Record
from stapes.decoder.rows import Results, Rows, run_rows
from stapes.errors import CapacityError, RequestError
from stapes.graph import KvCacheLike
from stapes.system import available_memory_bytes

if TYPE_CHECKING:
    from stapes.decoder.decoder import Decoder

#: Rows of one prefill run: bounds the working memory, and is enough to keep the arithmetic busy.
PREFILL_ROWS = 256


class Session:
    """One sequence. Not for use from two threads at once; sessions of one decoder may be.

    It remembers what its cache was computed from, so that a prompt which begins as the last one did
    is computed from where they part (see `reuse`). The cache grows in buckets of 512 positions and
    keeps what it holds; what does not fit raises CapacityError and leaves the session as it was, as
    does every other error: `record` says at any time what the cache holds.

    `Decoder.new_session` makes one. It has one answer under way at a time, so that a callback must
    leave the session that called it alone.

    Args:
        decoder: that computes the rows.
        cache: keys and values; its positions are those of `record`.
        record: what the cache was computed from; None for an empty one.
    """

    def __init__(self, decoder: Decoder, cache: KvCacheLike, record: Record | None = None) -> None:
        self.decoder = decoder
        self.cache = cache
        self.record = Record(decoder.spec.hidden_size) if record is None else record
        self.answers = 0  # begun so far: the last one has the cache
        self._no_values = np.zeros((0, decoder.spec.hidden_size), np.float32)

    @property
    def length(self) -> int:
        """Positions that the cache holds."""
        return self.cache.length

    @property
    def capacity(self) -> int:
        """Positions for which the cache has room."""
        return self.cache.capacity

    def truncate(self, length: int) -> None:
        """Forget all positions from `length` on. RequestError when there are not so many."""
        if not 0 <= length <= self.length:
            raise RequestError(
                f"A session of {self.length} positions cannot be truncated to {length}."
            )
        self.cache.truncate(length)
        self.record.truncate(length)

    def clone(self) -> Session:
        """A session with the same content, which then goes its own way.

        Pages of 512 positions are shared until one of the two writes to them.
        """
        return Session(self.decoder, self.cache.clone(), self.record.copy())

    def reuse(self, prompt: CheckedPrompt, promised: int | None = None) -> int:
        """Cut the cache back to what it has in common with a prompt; at most all but one position.

        Args:
            prompt: what is to be read. Token ids and injected rows are compared, by content.
            promised: how many first positions the caller knows to be in the cache; None: no idea.

        Returns:
            The number of positions that are kept and need not be computed.

        Raises:
            RequestError: the promise does not hold; the session is as it was.
        """
        equal = self.record.equal_prefix(prompt)
        if promised is not None and not 0 <= promised <= equal:
            raise RequestError(
                f"{promised} cached positions are promised, but the prompt of {len(prompt)} tokens "
                f"and the cache of {self.length} have the first {equal} in common."
            )
        self.answers += 1
        kept = min(equal, len(prompt) - 1)
        self.truncate(kept)
        return kept

    def reserve(self, positions: int, injected: int = 0) -> None:
        """Make room for `positions` in all, or raise CapacityError with the numbers.

        Args:
            positions: of the whole sequence.
            injected: how many of them are injected, for the message.
        """
        if positions <= self.capacity:
            return
        needed = -(-positions // 512) * self.cache.page_bytes
        missing = needed - self.capacity // 512 * self.cache.page_bytes
        limit = self.decoder.memory_limit_bytes
        available = available_memory_bytes() if limit is None else limit - (needed - missing)
        try:
            if available is not None and missing > available:
                raise MemoryError
            self.cache.reserve(positions)
        except MemoryError:
            have = "less" if available is None else f"{max(0, available):,}"
            raise CapacityError(
                f"A KV cache of {positions} positions ({injected} of them injected) needs "
                f"{missing:,} more bytes, but {have} are available."
            ) from None

    # -- reading, row by row -------------------------------------------------------------------

    def prefill(
        self, prompt: CheckedPrompt, picked: NDArray[np.int32] | None = None, want: Want = "next"
    ) -> NDArray[np.int32] | NDArray[np.float32]:
        """Read a prompt behind what the cache holds, all of it.

        Args:
            prompt: ids and injected rows; position 0 of the prompt is position `length`.
            picked: prompt rows whose results are wanted, ascending; None takes the last one.
            want: greedy ids or logits.

        Returns:
            [picked] i32 greedy ids (-1 for a row with a NaN), or logits [picked, logits_size] f32.
        """
        self.reserve(self.length + len(prompt), len(prompt.index))
        rows = np.array([len(prompt) - 1], np.int32) if picked is None else picked
        blocks = [
            self._block(prompt, start, min(start + PREFILL_ROWS, len(prompt)), rows)
            for start in range(0, len(prompt), PREFILL_ROWS)
        ]
        return np.concatenate([_wanted(run_rows([block], want)[0]) for block in blocks])

    def _block(
        self, prompt: CheckedPrompt, start: int, end: int, picked: NDArray[np.int32]
    ) -> Rows:
        part = prompt.part(start, end)
        chosen = picked[(picked >= start) & (picked < end)] - np.int32(start)
        return Rows(self, part.ids, part.values, part.index, chosen)

    def step(self, token_id: int, want: Want = "next") -> NDArray[np.int32] | NDArray[np.float32]:
        """Read `token_id` behind what the cache holds; see `prefill` for `want` and the result."""
        self.reserve(self.length + 1)
        zero = np.zeros(1, np.int32)
        ids = np.array([token_id], np.int32)
        return _wanted(run_rows([Rows(self, ids, self._no_values, zero[:0], zero)], want)[0])


def _wanted(results: Results) -> NDArray[np.int32] | NDArray[np.float32]:
    return results.next if results.logits is None else results.logits
