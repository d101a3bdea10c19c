"""A thread that works on one request at a time, beside the worker: for models that speak."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any

from stapes.errors import CancelledError
from stapes.server.scheduling.task import BusyError, Finished, Tell, Update
from stapes.server.scheduling.worker import RETRY_STOPPING_S

RETRY_LINE_S = 20  # about what a few sentences take to be spoken

#: What a request makes, one after the other; its argument tells whether it shall end.
Making = Callable[[Callable[[], bool]], Generator[Any]]


class LinePlace:
    """A request's place in a line; leaving the `with` block, or closing it, cancels and frees."""

    def __init__(self, line: Line) -> None:
        self._line, self._closed = line, False
        self.cancelled = False
        self.tell: Tell | None = None
        self.making: Making | None = None

    def submit(self, tell: Tell, making: Making) -> None:
        """What is to be done when its turn comes.

        Args:
            tell: is called in the line's thread with an `Update` for each thing that is made, and
                one `Finished`; it must neither block nor raise.
            making: runs in the line's thread.
        """
        self.tell, self.making = tell, making
        self._line.add(self)

    def close(self) -> None:
        """Free the place; what is not finished is cancelled. May be called twice."""
        if not self._closed:
            self._closed = self.cancelled = True
            self._line.release()

    def __enter__(self) -> LinePlace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Line:
    """Works on requests in the order in which they came.

    Args:
        name: of its model.
        max_queue: most requests that wait beside the one that runs.
    """

    def __init__(self, name: str, max_queue: int) -> None:
        self.name, self.max_queue = name, max_queue
        self._places = 0
        self._waiting: deque[LinePlace] = deque()
        self._current: LinePlace | None = None
        self._changed = threading.Condition()  # over all of these
        self._draining = self._stopping = False
        self._thread = threading.Thread(target=self._loop, name=f"stapes-{name}", daemon=True)

    # -- from any thread -------------------------------------------------------------------------

    @property
    def places_taken(self) -> int:
        """Requests that wait, run, or are being answered."""
        return self._places

    @property
    def running(self) -> int:
        """1 while it works, else 0."""
        return int(self._current is not None)

    @property
    def waiting(self) -> int:
        """Requests whose turn has not come."""
        return len(self._waiting)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def reserve(self) -> LinePlace:
        """A place for a request. BusyError when there is none, or no more."""
        with self._changed:
            if self._draining:
                raise BusyError("The server is stopping.", RETRY_STOPPING_S)
            if self._places > self.max_queue:
                raise BusyError(
                    f"{self.name} is busy: 1 request runs and {self.max_queue} wait.", RETRY_LINE_S
                )
            self._places += 1
        return LinePlace(self)

    def release(self) -> None:
        """A place is free again; see `LinePlace.close`."""
        with self._changed:
            self._places -= 1
            self._changed.notify_all()

    def add(self, place: LinePlace) -> None:
        """See `LinePlace.submit`."""
        with self._changed:
            self._waiting.append(place)
            self._changed.notify_all()

    def drain(self) -> None:
        """Take no more requests; those that have a place go on."""
        with self._changed:
            self._draining = True

    def stop(self) -> None:
        """End the thread; requests that are under way fail with a BusyError."""
        with self._changed:
            self._draining = self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    # -- the thread ------------------------------------------------------------------------------

    def _loop(self) -> None:
        while (place := self._next()) is not None:
            assert place.tell is not None, "set before it was added"
            place.tell(self._worked(place))
            with self._changed:
                self._current = None

    def _next(self) -> LinePlace | None:
        """Waits for a request; None once the line is stopped and nothing waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping)
            self._current = self._waiting.popleft() if self._waiting else None
            return self._current

    def _worked(self, place: LinePlace) -> Finished:
        """Do all of a request; what it raises ends this request alone."""
        try:
            if not self._shall_end(place):
                self._make(place)
        except CancelledError:
            pass
        except Exception as error:
            return Finished(error=error)
        if self._stopping and not place.cancelled:
            return Finished(error=BusyError("The server has stopped.", RETRY_STOPPING_S))
        return Finished()

    def _make(self, place: LinePlace) -> None:
        assert place.tell is not None
        assert place.making is not None
        made = place.making(lambda: self._shall_end(place))
        with contextlib.closing(made):
            for value in made:
                place.tell(Update(value))
                if self._shall_end(place):
                    return

    def _shall_end(self, place: LinePlace) -> bool:
        return place.cancelled or self._stopping
