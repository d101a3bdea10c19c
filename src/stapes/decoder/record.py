"""What a cache was computed from: the ground on which its prefix is used again."""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.prompt import CheckedPrompt


class Record:
    """Ids and injected rows of the positions that a cache holds, by content.

    Args:
        hidden_size: width of an injected row.
    """

    def __init__(self, hidden_size: int) -> None:
        self._ids = array("i")
        self._index = array("i")  # positions of injected rows, ascending
        self._values = np.zeros((0, hidden_size), np.float32)  # [room, hidden]

    def __len__(self) -> int:
        return len(self._ids)

    def copy(self) -> Record:
        """A record that goes its own way."""
        other = Record(self._values.shape[1])
        other._ids, other._index = self._ids[:], self._index[:]
        other._values = self._values[: len(self._index)].copy()
        return other

    def append(
        self, ids: NDArray[np.int32], values: NDArray[np.float32], index: NDArray[np.int32]
    ) -> None:
        """Ids [n] come behind what is there; values [m, hidden] stand for those at index [m]."""
        count, length = len(self._index), len(self._ids)
        needed = count + index.size
        if needed > len(self._values):
            grown = np.zeros((max(needed, 2 * count), self._values.shape[1]), np.float32)
            grown[:count] = self._values[:count]
            self._values = grown
        self._values[count:needed] = values
        self._index.extend((index + length).tolist())
        self._ids.extend(ids.tolist())

    def truncate(self, length: int) -> None:
        """Forget positions from `length` on."""
        del self._ids[length:]
        del self._index[bisect_left(self._index, length) :]

    def equal_prefix(self, prompt: CheckedPrompt) -> int:
        """How many first positions of a prompt are those of the record, bit for bit."""
        return min(self.equal_ids(prompt.ids), self._equal_rows(prompt))

    def equal_ids(self, ids: NDArray[np.integer]) -> int:
        """How many first ids [n] are those of the record, whatever rows are injected."""
        count = min(len(self._ids), ids.size)
        return _first(np.array(self._ids[:count], np.int32) != ids[:count])

    def _equal_rows(self, prompt: CheckedPrompt) -> int:
        """The first position at which one has a row that the other has not, or another one."""
        ours, theirs = self._index, prompt.index.tolist()
        count = min(len(ours), len(theirs))
        places = _first(np.array(ours[:count], np.int32) != prompt.index[:count])
        mine, given = self._values[:places], prompt.values[:places]
        rows = _first((mine.view(np.int32) != given.view(np.int32)).any(axis=1))
        end = min(len(self._ids), len(prompt))
        parted: list[int] = [*ours[rows : rows + 1], *theirs[rows : rows + 1], end]
        return min(parted)


def _first(differ: NDArray[np.bool_]) -> int:
    """Index of the first True; the length without one."""
    return int(differ.argmax()) if differ.any() else differ.size
