"""Where a stream's audio comes in: any rate and form, from any one thread."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stapes.audio.arrays import MAX_CHANNELS, SAMPLE_TYPES, check_rate
from stapes.audio.mix import Mixdown
from stapes.audio.recording import SAMPLE_RATE
from stapes.errors import AudioError, CapacityError, RequestError

F32 = NDArray[np.float32]

_MOST = 100.0  # floats beyond are integers that were not scaled
_APART_S = 0.01  # arrivals closer together count as one
_NOTHING = np.zeros(0, np.float32)


class Intake:
    """Samples that have come and were not taken yet, and when they came.

    One thread may feed while another takes. Samples beyond [-1, 1] are clipped: a stream cannot be
    divided by a peak that it does not know.

    Args:
        rate: Hz of what is fed.
        max_backlog_s: with more than this waiting, nothing more is taken in.
        clock: seconds.
    """

    def __init__(self, rate: int, max_backlog_s: float, clock: Callable[[], float]) -> None:
        self._rate = check_rate(rate)
        self._most = max_backlog_s * SAMPLE_RATE
        self._clock = clock
        self._mix = Mixdown("The stream")
        self._feeding = threading.Lock()
        self._state = threading.Lock()  # of the next three; never held for long
        self._blocks: deque[F32] = deque()
        self._came: list[tuple[int, float]] = []  # samples in all, and when there were so many
        self._fed = 0  # of the caller's samples
        self._taken = 0
        self.total = 0  # samples at 16 kHz that have come
        self.last_s = clock()  # when something came
        self.ended = False

    @property
    def waiting(self) -> int:
        """Samples that were not taken yet."""
        return self.total - self._taken

    def feed(self, samples: ArrayLike) -> None:
        """Take samples in; see `Stream.feed`."""
        with alone(self._feeding, "feed"):
            if self.ended:
                raise RequestError("The stream has been finished: nothing more can be fed.")
            if self.waiting > self._most:
                raise CapacityError(
                    f"{self.waiting / SAMPLE_RATE:.0f} s of audio wait to be read, more than the "
                    f"{self._most / SAMPLE_RATE:g} s of max_backlog_s: poll is called too seldom, "
                    "or the machine is too slow."
                )
            channels = self._checked(samples)
            self._fed += channels.shape[1]
            self._put(self._mix.add(channels, self._rate))
            self.last_s = self._clock()

    def end(self) -> None:
        """There is no more to come. Doing it twice is no fault."""
        with alone(self._feeding, "feed"):
            if not self.ended and self._fed:
                self._put(self._rest())
            self.ended = True

    def take(self, most: int) -> F32:
        """The next samples, at most so many: f32 [n], 16 kHz, mono, within [-1, 1]."""
        taken, count = [], 0
        with self._state:
            while self._blocks and count < most:
                block = self._blocks.popleft()
                if block.size > most - count:
                    self._blocks.appendleft(block[most - count :])
                    block = block[: most - count]
                taken.append(block)
                count += block.size
            self._taken += count
        return np.concatenate(taken) if taken else _NOTHING

    def came_s(self, sample: int) -> float:
        """When the stream had so many samples, by the clock."""
        with self._state:
            place = bisect_left(self._came, (sample, -np.inf))
            return self._came[min(place, len(self._came) - 1)][1] if self._came else self.last_s

    def forget(self, sample: int) -> None:
        """`came_s` will be asked for no earlier sample."""
        with self._state:
            del self._came[: bisect_left(self._came, (sample, -np.inf))]

    def _rest(self) -> F32:
        try:
            return self._mix.finish()
        except AudioError:  # fewer samples than the resampler needs to make one
            return _NOTHING

    def _put(self, samples: F32) -> None:
        if not samples.size:
            return
        now, clipped = self._clock(), np.clip(samples, -1.0, 1.0)
        with self._state:
            self._blocks.append(clipped)
            self.total += samples.size
            if len(self._came) > 1 and now - self._came[-2][1] < _APART_S:
                self._came.pop()
            self._came.append((self.total, now))

    def _checked(self, samples: ArrayLike) -> NDArray[np.generic]:
        """[channels, n]; RequestError, AudioError."""
        array = np.asarray(samples)
        if array.dtype.str[1:] not in SAMPLE_TYPES:
            raise RequestError(
                f"Samples must be float32, float64, int16, int32 or uint8, not {array.dtype}."
            )
        if array.ndim not in (1, 2) or (
            array.ndim == 2 and not 1 <= array.shape[1] <= MAX_CHANNELS
        ):
            raise RequestError(
                f"Samples must be (n,), or (n, channels) with at most {MAX_CHANNELS} channels, not "
                f"of the shape {array.shape}."
            )
        if array.dtype.kind == "f" and array.size:
            peak = float(np.abs(array).max())
            if not np.isfinite(peak):
                raise AudioError("The samples hold values that are not numbers: NaN or infinity.")
            if peak > _MOST:
                raise RequestError(
                    f"Floats must lie within [-1, 1], but the peak is {peak:g}: feed integers as "
                    "int16 or int32."
                )
        return array[np.newaxis] if array.ndim == 1 else array.T


@contextmanager
def alone(lock: threading.Lock, what: str) -> Iterator[None]:
    """Hold a lock; it is not waited for.

    Raises:
        RequestError: another thread holds it.
    """
    if not lock.acquire(blocking=False):
        raise RequestError(f"Two threads {what} this stream at once: the order would be arbitrary.")
    try:
        yield
    finally:
        lock.release()
