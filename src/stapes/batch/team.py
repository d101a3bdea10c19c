"""Tasks handed to workers as these get free; workers that die are replaced."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from stapes.batch.task import WORKER, Died, Message, Outcome, Ready, Task
from stapes.errors import CapacityError

# Of workers at one task: after the second it was most likely the recording.
_MOST_DEATHS = 2
# Of workers in a row while they load the model.
_MOST_FAILED_STARTS = 3
# Between looks at `should_stop`: short for a person who waits, and nothing to a processor.
_POLL_S = 0.2

Worker = TypeVar("Worker")


class Backend(Protocol[Worker]):
    """A kind of workers. A worker is any object that can be hashed."""

    def start(self) -> Worker:
        """Start a worker, which loads its model and then says Ready, or the error."""
        ...

    def send(self, worker: Worker, task: Task) -> None:
        """Give a task to a worker that has nothing to do; one that is dead says Died later."""
        ...

    def receive(self, timeout_s: float) -> list[tuple[Worker, Message]]:
        """What workers have said by now, waiting for the first at most `timeout_s` seconds."""
        ...

    def stop(self, worker: Worker) -> None:
        """End a worker, whatever it is doing."""
        ...


class Team(Generic[Worker]):
    """At most so many workers for a list of tasks; there are never more than tasks left."""

    def __init__(self, backend: Backend[Worker], workers: int, tasks: Iterable[Task]) -> None:
        self._backend = backend
        self._most = workers
        self._waiting = deque(tasks)
        self._loading: set[Worker] = set()
        self._free: set[Worker] = set()
        self._doing: dict[Worker, Task] = {}
        self._deaths: dict[str, int] = {}  # task id -> workers that died of it
        self._failed_starts = 0

    def outcomes(self, should_stop: Callable[[], bool]) -> Iterator[Outcome]:
        """What became of the tasks, as they end; when told to stop, of those that have ended.

        Raises:
            StapesError: no worker can load the model.
        """
        while self._waiting or self._doing:
            if should_stop():
                yield from self._heard(0.0)
                return
            self._fill()
            yield from self._heard(_POLL_S)

    def _fill(self) -> None:
        """Start the workers that there is work for, and give all that are free a task."""
        wanted = min(self._most, len(self._waiting) + len(self._doing))
        while len(self._loading) + len(self._free) + len(self._doing) < wanted:
            self._loading.add(self._backend.start())
        while self._free and self._waiting:
            worker = self._free.pop()
            self._doing[worker] = self._waiting.popleft()
            self._backend.send(worker, self._doing[worker])

    def _heard(self, timeout_s: float) -> Iterator[Outcome]:
        for worker, message in self._backend.receive(timeout_s):
            match message:
                case Ready():
                    self._loading.discard(worker)
                    self._free.add(worker)
                    self._failed_starts = 0
                case Outcome():
                    del self._doing[worker]
                    self._free.add(worker)
                    yield message
                case Died():
                    yield from self._bury(worker, message)
                case _:
                    raise message

    def _bury(self, worker: Worker, died: Died) -> Iterator[Outcome]:
        """Do without a worker; its task waits for another one, or has failed."""
        self._backend.stop(worker)
        self._free.discard(worker)
        if worker in self._loading:
            self._loading.discard(worker)
            self._failed_starts += 1
            if self._failed_starts == _MOST_FAILED_STARTS:
                raise CapacityError(
                    f"{_MOST_FAILED_STARTS} workers in a row ended while they loaded the model, "
                    f"and the last one {died.how}: try fewer workers."
                )
        task = self._doing.pop(worker, None)
        if task is None:
            return
        self._deaths[task.id] = deaths = self._deaths.get(task.id, 0) + 1
        if deaths < _MOST_DEATHS:
            self._waiting.append(task)  # at the end: memory may be less scarce by then
        else:
            sentence = f"{deaths} workers ended while they transcribed it, and the last one "
            yield Outcome.failed(task, f"{sentence}{died.how}.", WORKER)
