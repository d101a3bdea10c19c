"""A live stream: sound comes in small parts, the worker looks at it between its other runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE
from stapes.decoder import Generation
from stapes.server.scheduling.lane import Lane
from stapes.server.scheduling.task import Task, Tell, Update

_MOST_AT_ONCE = SAMPLE_RATE  # samples that a stream is fed before it is asked for events


@dataclass(frozen=True)
class LiveEvent:
    """Something that a stream has heard, from start_s to end_s of its sound.

    Attributes:
        type: "partial" text may still change, "committed" text will not, "final" text is all that
            was said in one utterance.
        text: what was said.
        start_s, end_s: seconds since the stream began.
        language: name of the language, or None.
        lag_s: seconds from the end of the sound that the event is about to the event.
    """

    type: Literal["partial", "committed", "final"]
    text: str
    start_s: float
    end_s: float
    language: str | None = None
    lag_s: float = 0.0


class LiveStream(Protocol):
    """Live transcription of one stream of sound; called from one thread."""

    def feed(self, samples: NDArray[np.float32]) -> None:
        """The next samples, f32 [n], mono 16 kHz."""
        ...

    def poll(self) -> Sequence[LiveEvent]:
        """Do a bounded amount of work; what is new."""
        ...

    def finish(self) -> Sequence[LiveEvent]:
        """The sound has ended: the last events."""
        ...


class LiveTask(Task):
    """Tells an `Update` with each `LiveEvent`; its result is None.

    Args:
        tell: see `Task`.
        open_stream: makes the stream, in the worker's thread.
    """

    live = True

    def __init__(self, tell: Tell, open_stream: Callable[[], LiveStream]) -> None:
        super().__init__(tell)
        self._open_stream = open_stream
        self._stream: LiveStream | None = None
        self._wake: Callable[[], None] = lambda: None
        self._incoming: deque[NDArray[np.float32]] = deque()
        self._fed = self._taken = 0
        self._ended = self._finished = False

    # -- from any thread -------------------------------------------------------------------------

    @property
    def behind_s(self) -> float:
        """Seconds of sound that were pushed and not looked at yet."""
        return (self._fed - self._taken) / SAMPLE_RATE

    def push(self, samples: NDArray[np.float32]) -> None:
        """The next samples, f32 [n], mono 16 kHz, from one thread."""
        for start in range(0, samples.size, _MOST_AT_ONCE):
            self._incoming.append(samples[start : start + _MOST_AT_ONCE])
        self._fed += samples.size
        self._wake()

    def end(self) -> None:
        """No more samples will come."""
        self._ended = True
        self._wake()

    # -- the worker's thread ---------------------------------------------------------------------

    @property
    def running(self) -> int:
        """See `Task`: its runs are its own."""
        return 0

    def begin(self, lane: Lane) -> None:
        """See `Task`."""
        self._wake = lane.wake
        self._stream = self._open_stream()

    def work(self, may_add: bool) -> bool:
        """See `Task`: one part of the sound."""
        del may_add
        if self._stream is None or self._finished:
            return False
        ended = self._ended  # looked at first: sound that was pushed before it is in the queue
        if self._incoming:
            samples = self._incoming.popleft()
            self._stream.feed(samples)
            self._tell_all(self._stream.poll())
            self._taken += samples.size
            return True
        if ended:
            self._tell_all(self._stream.finish())
            self._finished = True
            return True
        return False

    def owns(self, generation: Generation) -> bool:
        """See `Task`."""
        del generation
        return False

    def take(self, generation: Generation) -> None:
        """See `Task`."""

    @property
    def done(self) -> bool:
        """See `Task`."""
        return self._finished

    def result(self) -> None:
        """See `Task`."""

    def close(self) -> None:
        """See `Task`."""
        self._incoming.clear()
        self._stream = None

    def _tell_all(self, events: Sequence[LiveEvent]) -> None:
        for event in events:
            self.tell(Update(event))
