"""A live stream: sound comes in small parts, the worker looks at it between its other runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE
from stapes.decoder import Batch, Generation
from stapes.server.scheduling.backlog import Backlog
from stapes.server.scheduling.lane import Lane
from stapes.server.scheduling.task import Task, Tell, Update

_MOST_FED_S = 20.0  # of sound that a stream holds and has not looked at; the rest waits outside it
_FED_AT_ONCE = SAMPLE_RATE  # samples


@dataclass(frozen=True)
class LiveEvent:
    """Something that a stream has heard: the fields that all events have.

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
    """Live transcription of one stream of sound; called from the worker's thread."""

    @property
    def pending(self) -> bool:
        """Whether `poll` has work to do."""
        ...

    @property
    def waiting_s(self) -> float:
        """Seconds of sound that were fed and not looked at yet."""
        ...

    @property
    def waits(self) -> bool:
        """Whether `poll` can do nothing until an answer in the lane's batch is finished."""
        ...

    def feed(self, samples: NDArray[np.float32]) -> None:
        """The next samples, f32 [n], mono 16 kHz; nothing is computed."""
        ...

    def end(self) -> None:
        """No more sound will come."""
        ...

    def poll(self) -> Sequence[Any]:
        """Do a bounded amount of work; events that are new: dataclasses as `LiveEvent`, or more."""
        ...

    def close(self) -> None:
        """Leave the batch."""
        ...


class LiveTask(Task):
    """Tells an `Update` with each `LiveEvent`; its result is None.

    Args:
        tell: see `Task`.
        open_stream: makes the stream, in the worker's thread, given the batch that it shares.
        most_bytes: of sound that may wait, 4 a sample.
    """

    live = True

    def __init__(
        self, tell: Tell, open_stream: Callable[[Batch], LiveStream], most_bytes: int
    ) -> None:
        super().__init__(tell)
        self._open_stream = open_stream
        self._stream: LiveStream | None = None
        self._wake: Callable[[], None] = lambda: None
        self._backlog = Backlog(most_bytes)
        self._waited_s = 0.0  # what was fed last, before it was
        self._pushed = 0
        self._ended = self._told_end = self._finished = False

    # -- from any thread -------------------------------------------------------------------------

    @property
    def pushed_s(self) -> float:
        """Seconds of sound that were pushed."""
        return self._pushed / SAMPLE_RATE

    @property
    def behind_s(self) -> float:
        """Seconds of sound that were pushed and not looked at yet."""
        stream = self._stream
        waiting_s = 0.0 if stream is None else stream.waiting_s
        return len(self._backlog) / SAMPLE_RATE + waiting_s

    def push(self, samples: NDArray[np.float32]) -> None:
        """The next samples, f32 [n], mono 16 kHz, from one thread; dropped behind the end.

        Raises:
            CapacityError, RequestError: as `Backlog.push`.
        """
        if self._ended:
            return
        self._backlog.push(samples)
        self._pushed += samples.size
        self._wake()

    def end(self) -> None:
        """No more samples will come, or are wanted."""
        self._ended = True
        self._wake()

    # -- the worker's thread ---------------------------------------------------------------------

    @property
    def running(self) -> int:
        """See `Task`."""
        return 1 if self._stream is not None and self._stream.waits else 0

    def begin(self, lane: Lane) -> None:
        """See `Task`."""
        self._wake = lane.wake
        self._stream = self._open_stream(lane.batch)

    def work(self, may_add: bool) -> bool:
        """See `Task`: one look at the sound."""
        del may_add
        if self._stream is None or self._finished or self._stream.waits:
            return False
        ended = self._ended  # looked at first: sound that was pushed before it is in the queue
        if not self._told_end:
            self._feed(self._stream)
        if ended and not self._told_end and not len(self._backlog):
            self._stream.end()
            self._told_end = True
        if self._stream.pending:
            for event in self._stream.poll():
                self.tell(Update(replace(event, lag_s=event.lag_s + self._waited_s)))
            return True
        self._finished = self._told_end
        return self._finished

    def owns(self, generation: Generation) -> bool:
        """See `Task`: the stream looks itself whether its answer is finished."""
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
        self._ended = True
        self._backlog.close()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _feed(self, stream: LiveStream) -> None:
        while len(self._backlog) and (not stream.pending or stream.waiting_s < _MOST_FED_S):
            samples, self._waited_s = self._backlog.take(_FED_AT_ONCE)
            stream.feed(samples)
