"""Memory for packed matrices: large anonymous mappings that ask for huge pages.

At one row a layer is as fast as its weights can be read, and from 4 KB pages that takes a quarter
longer than from 2 MB ones. A matrix alone is too small to be given huge pages.
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

_ARENA_BYTES = 64 << 20
_ALIGNMENT = 64  # a cache line


class Arena:
    """Hands out memory; an arena is freed when the last array that was cut from it is."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._used = 0

    def take(self, size: int) -> NDArray[np.uint8]:
        """Zeroed memory [size], its first byte on a cache line."""
        if self._used + size > self._memory.size:
            self._memory, self._used = _mapping(max(size, _ARENA_BYTES)), 0
        taken = self._memory[self._used : self._used + size]
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return taken


def _mapping(size: int) -> NDArray[np.uint8]:
    try:
        # Private: a shared mapping, which is Python's default, is never given huge pages.
        mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        raise MemoryError(f"{size} bytes could not be mapped") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapping, np.uint8)
