"""A stretch of a recording that moves on: samples come at its end and go at its start."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


class SampleWindow:
    """The samples of a recording from position `start` up to `end`, f32."""

    def __init__(self) -> None:
        self.start = 0
        self._blocks: list[F32] = []
        self._held = 0

    @property
    def end(self) -> int:
        """How many samples the recording has so far."""
        return self.start + self._held

    def append(self, block: F32) -> None:
        """The next samples, f32 [n]; they are kept, not copied."""
        self._blocks.append(block)
        self._held += block.size

    def part(self, start: int, end: int) -> F32:
        """A copy of samples [start, end)."""
        if len(self._blocks) != 1:
            self._blocks = [np.concatenate(self._blocks)] if self._blocks else []
        whole = self._blocks[0] if self._blocks else np.zeros(0, np.float32)
        return whole[start - self.start : end - self.start].copy()

    def forget(self, position: int) -> None:
        """Samples before `position` are not needed any more."""
        while self._blocks and self.start < position:
            block = self._blocks.pop(0)
            count = min(block.size, position - self.start)
            if count < block.size:
                self._blocks.insert(0, block[count:])
            self.start += count
            self._held -= count
