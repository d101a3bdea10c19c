"""The thread that owns the decoders, and the places of the requests that it works for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from types import TracebackType

from stapes.server.scheduling.lane import Lane
from stapes.server.scheduling.task import BusyError, Task

RETRY_FULL_S = 5  # about what a short recording takes
RETRY_STOPPING_S = 10  # about what a restart takes


class Place:
    """A request's place, from before its upload to its end; leaving the `with` block frees it.

    Leaving also cancels the request if it is still under way.
    """

    def __init__(self, worker: Worker, lane: Lane, live: bool) -> None:
        self._worker, self.lane, self.live = worker, lane, live
        self._task: Task | None = None
        self._closed = False

    def submit(self, task: Task) -> None:
        """Give the worker the request that the place is for."""
        self._task = task
        self.lane.add(task)

    def close(self) -> None:
        """Free the place; a request that is not finished is cancelled. May be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        self._worker.release(self)

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Worker:
    """Runs the lanes in turn, in a thread of its own.

    Args:
        lanes: one for each model; their `wake` becomes the worker's.
        max_queue: most requests of a lane that wait beside those for which it has slots.
        max_streams: most live streams of a lane; they run at once and take no slot.
    """

    def __init__(self, lanes: Iterable[Lane], max_queue: int, max_streams: int = 8) -> None:
        self.lanes = {lane.name: lane for lane in lanes}
        self.max_queue, self.max_streams = max_queue, max_streams
        self.draining = False
        self._open: Counter[tuple[str, bool]] = Counter()  # by lane and whether it is a stream
        self._lock = threading.Lock()  # of _open, draining
        self._awake = threading.Event()
        self._stopping = False
        self._pings: deque[threading.Event] = deque()
        self._thread = threading.Thread(target=self._loop, name="stapes-worker", daemon=True)
        for lane in self.lanes.values():
            lane.wake = self.wake

    # -- from any thread -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; requests that are under way fail with a BusyError."""
        self._stopping = True
        self.wake()
        if self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """There may be something to do."""
        self._awake.set()

    def reserve(self, name: str, live: bool = False) -> Place:
        """A place for a request to a model. BusyError when there is none, or no more.

        Args:
            name: of the lane.
            live: whether the request is a `LiveTask`.
        """
        lane = self.lanes[name]
        with self._lock:
            if self.draining:
                raise BusyError("The server is stopping.", RETRY_STOPPING_S)
            if live and self._open[name, live] >= self.max_streams:
                raise BusyError(
                    f"The server is full: {self.max_streams} live streams run.", RETRY_FULL_S
                )
            if not live and self._open[name, live] >= lane.slots + self.max_queue:
                raise BusyError(
                    f"The server is full: {lane.slots} requests run and {self.max_queue} wait.",
                    RETRY_FULL_S,
                )
            self._open[name, live] += 1
        return Place(self, lane, live)

    def check_open(self) -> None:
        """BusyError when no request is taken any more, or no lane has a place."""
        with self._lock:
            if self.draining:
                raise BusyError("The server is stopping.", RETRY_STOPPING_S)
            lanes = self.lanes.values()
            full = [self._open[each.name, False] >= each.slots + self.max_queue for each in lanes]
            if full and all(full):
                raise BusyError("The server is full.", RETRY_FULL_S)

    def release(self, place: Place) -> None:
        """A place is free again; see `Place.close`."""
        with self._lock:
            self._open[place.lane.name, place.live] -= 1
        self.wake()

    def drain(self) -> None:
        """Take no more requests; those that have a place go on, but live streams end here."""
        with self._lock:
            self.draining = True
        for lane in self.lanes.values():
            lane.end_streams()

    @property
    def places_taken(self) -> int:
        """Requests that have a place: they upload, wait, run, or are being answered."""
        return self._open.total()

    def ping(self, timeout_s: float) -> float | None:
        """Seconds until the worker was between two of its runs; None when it was not in time."""
        asked, answered = time.perf_counter(), threading.Event()
        self._pings.append(answered)
        self.wake()
        return time.perf_counter() - asked if answered.wait(timeout_s) else None

    # -- the thread ------------------------------------------------------------------------------

    def _loop(self) -> None:
        while not self._stopping:
            self._awake.clear()
            while self._pings:
                self._pings.popleft().set()
            busy = [self._turn(lane) for lane in self.lanes.values()]
            if not any(busy):
                self._awake.wait()
        for lane in self.lanes.values():
            lane.fail(BusyError("The server has stopped.", RETRY_STOPPING_S))

    def _turn(self, lane: Lane) -> bool:
        """A turn of a lane. An error here is a mistake of ours: no other lane must suffer."""
        try:
            return lane.turn()
        except Exception as error:
            with contextlib.suppress(Exception):
                lane.fail(error)
            return True
