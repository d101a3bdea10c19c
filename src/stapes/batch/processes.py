"""Workers that are processes of this machine; they share the pages of a mapped model."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType

from stapes.batch.task import Died, Message, Task
from stapes.batch.transcriber import Load, Transcriber

# A process that is told to end has this long before it is killed.
_GRACE_S = 5.0


@dataclass(frozen=True, eq=False)
class _Worker:
    process: SpawnProcess
    connection: Connection


class Processes:
    """A `team.Backend`; its processes end with it, or when this one is gone."""

    def __init__(self, load: Load) -> None:
        """`load` is sent to each process, so it must be something that pickle can send."""
        self._context = multiprocessing.get_context("spawn")
        self._load = load
        self._workers: list[_Worker] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.process.terminate()
        for worker in list(self._workers):
            self.stop(worker)

    def start(self) -> _Worker:
        """See `Backend`."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=serve, args=(theirs, self._load), daemon=True)
        with _without_interrupts():
            process.start()
        # Theirs alone: when the process ends, however it ends, ours tells.
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def send(self, worker: _Worker, task: Task) -> None:
        """See `Backend`."""
        with contextlib.suppress(ConnectionError):
            worker.connection.send(task)

    def receive(self, timeout_s: float) -> list[tuple[_Worker, Message]]:
        """See `Backend`."""
        talking = set(wait([worker.connection for worker in self._workers], timeout_s))
        return [(w, _said(w)) for w in self._workers if w.connection in talking]

    def stop(self, worker: _Worker) -> None:
        """See `Backend`."""
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.terminate()
        worker.process.join(_GRACE_S)
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
        worker.process.close()


def serve(connection: Connection, load: Load) -> None:
    """What a worker does until the other end of the connection is closed."""
    parent = multiprocessing.parent_process()
    worker = Transcriber(load, lambda: parent is not None and not parent.is_alive())
    with contextlib.suppress(EOFError, ConnectionError):
        connection.send(worker.load())
        while True:
            connection.send(worker.transcribe(connection.recv()))


def _said(worker: _Worker) -> Message:
    try:
        message: Message = worker.connection.recv()
    except (EOFError, OSError):  # also of a message that stops midway
        worker.process.join(_GRACE_S)
        return Died(_how(worker.process.exitcode))
    return message


def _how(exitcode: int | None) -> str:
    if exitcode is None:
        return "fell silent"
    if exitcode >= 0:
        return f"ended with exit code {exitcode}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-exitcode).name
        hint = ", as happens when memory runs out" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"
    return f"was ended by signal {-exitcode}"


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """What is started here never sees Ctrl-C, which goes to all processes of a terminal.

    The starting process decides what it means: it waits for no more than what is finished.
    """
    # The first process brings the tracker, whose start ends with SIGINT let through once more.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
