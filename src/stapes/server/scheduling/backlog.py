"""Sound that waits for the worker: in memory while it is little, else in temporary files."""

from __future__ import annotations

import threading
from collections import deque
from tempfile import SpooledTemporaryFile

import numpy as np
from numpy.typing import NDArray

from stapes.errors import RequestError

_BYTES = np.dtype(np.float32).itemsize
_SEGMENT_BYTES = 2**22  # of a file: what was read of them is given back file by file
_MEMORY_BYTES = 2**20  # of a segment, before it goes to a file: 16 s at 16 kHz


class Backlog:
    """Samples, first in, first out. One thread pushes, one takes.

    Args:
        most_bytes: that may wait, 4 a sample.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._segments: deque[_Segment] = deque()
        self._waiting = 0

    def __len__(self) -> int:
        """Samples that wait."""
        return self._waiting

    def push(self, samples: NDArray[np.float32]) -> None:
        """The next samples, f32 [n].

        Raises:
            RequestError: more would wait than may; nothing of them is taken.
            OSError: there is no room on the disk.
        """
        data = samples.astype(np.float32, copy=False).tobytes()
        with self._lock:
            waiting = self._waiting * _BYTES + len(data)
            if waiting > self._most:
                raise RequestError(
                    f"{waiting / 2**20:.1f} MB of sound would wait to be heard, and "
                    f"{self._most / 2**20:.1f} MB may: send it as it is spoken, or as a file."
                )
            if not self._segments or self._segments[-1].full:
                self._segments.append(_Segment())
            self._segments[-1].write(data)
            self._waiting += samples.size

    def take(self, most: int) -> NDArray[np.float32]:
        """The oldest samples, f32 [n], at most so many; none when none wait."""
        with self._lock:
            if not self._segments:
                return np.zeros(0, np.float32)
            data = self._segments[0].read(most * _BYTES)
            if self._segments[0].empty:
                self._segments.popleft().close()
            self._waiting -= len(data) // _BYTES
        return np.frombuffer(data, np.float32)

    def close(self) -> None:
        """Forget what waits; its files are gone."""
        with self._lock:
            while self._segments:
                self._segments.popleft().close()
            self._waiting = 0


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
