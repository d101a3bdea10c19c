"""Sound that waits for the worker: in memory while it is little, else in temporary files."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from tempfile import SpooledTemporaryFile

import numpy as np
from numpy.typing import NDArray

from stapes.errors import CapacityError
from stapes.output.files import storage_error

_BYTES = np.dtype(np.float32).itemsize
_SEGMENT_BYTES = 2**22  # of a file: what was read of them is given back file by file
_MEMORY_BYTES = 2**20  # of a segment, before it goes to a file: 16 s at 16 kHz
_TOGETHER_S = 0.1  # what comes within so long has one time


class Backlog:
    """Samples, first in, first out, that know how long they waited. One thread pushes, one takes.

    Args:
        most_bytes: that may wait, 4 a sample.
        clock: seconds; for tests.
    """

    def __init__(self, most_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most_bytes, clock
        self._lock = threading.Lock()
        self._segments: deque[_Segment] = deque()
        self._came: deque[tuple[int, float]] = deque()  # samples up to here, when
        self._pushed = self._taken = 0

    def __len__(self) -> int:
        """Samples that wait."""
        return self._pushed - self._taken

    def push(self, samples: NDArray[np.float32]) -> None:
        """The next samples, f32 [n].

        Raises:
            CapacityError: more would wait than may, or the disk is full. RequestError: no file can
                be written. In all cases nothing is taken.
        """
        data = samples.astype(np.float32, copy=False).tobytes()
        with self._lock:
            if len(self) * _BYTES + len(data) > self._most:
                raise CapacityError(
                    f"More than {self._most / 2**20:g} MB of sound would wait to be heard: send it "
                    "as it is spoken, or as a file."
                )
            if not self._segments or self._segments[-1].full:
                self._segments.append(_Segment())
            try:
                self._segments[-1].write(data)
            except OSError as error:
                raise storage_error(error, "sound that waits") from error
            self._pushed += samples.size
            self._note_time()

    def take(self, most: int) -> tuple[NDArray[np.float32], float]:
        """The oldest samples, f32 [n], at most so many; seconds that the last of them waited."""
        with self._lock:
            if not self._segments:
                return np.zeros(0, np.float32), 0.0
            data = self._segments[0].read(most * _BYTES)
            if self._segments[0].empty:
                self._segments.popleft().close()
            self._taken += len(data) // _BYTES
            while self._came[0][0] < self._taken:
                self._came.popleft()
            return np.frombuffer(data, np.float32), self._clock() - self._came[0][1]

    def close(self) -> None:
        """Forget what waits; its files are gone."""
        with self._lock:
            while self._segments:
                self._segments.popleft().close()
            self._taken = self._pushed

    def _note_time(self) -> None:
        now = self._clock()
        if self._came and now - self._came[-1][1] < _TOGETHER_S:
            now = self._came.pop()[1]
        self._came.append((self._pushed, now))


class _Segment:
    """Bytes that are written at the end and read from the beginning."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile[bytes](_MEMORY_BYTES)
        self._written = self._read = 0

    @property
    def full(self) -> bool:
        return self._written >= _SEGMENT_BYTES

    @property
    def empty(self) -> bool:
        return self._read == self._written

    def write(self, data: bytes) -> None:
        self._file.seek(self._written)
        self._file.write(data)
        self._written += len(data)

    def read(self, most: int) -> bytes:
        self._file.seek(self._read)
        data = self._file.read(min(most, self._written - self._read))
        self._read += len(data)
        return data

    def close(self) -> None:
        self._file.close()
