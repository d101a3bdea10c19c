"""One model's requests: who waits, who runs, and the batch that their answers share."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock

from stapes.decoder import Batch, Decoder, SessionPool
from stapes.server.scheduling.task import Finished, Task

#: Rows of one run when several answers share it: a prompt is read in blocks of so many, so that the
#: others wait no longer than about one block for their next token. Arithmetic is nearly at its best
#: from 24 rows on.
SHARED_ROWS = 64
#: Rows of one run of an answer that is alone.
ALONE_ROWS = 256
#: Seconds of work outside the batch (encoding, prompts) between two runs of it. A step may take
#: longer, as 8 s of sound are encoded in one.
PAUSE_S = 0.05


class Lane:
    """The requests of one decoder.

    `add` may be called from any thread; `turn` belongs to the worker's.

    Args:
        name: of the model.
        decoder: whose rows are run.
        slots: requests that run at once, and answers side by side beyond each one's first.
        pool_bytes: of caches that are kept for prompts to come.
        wake: tells the worker that there is something to do.
    """

    def __init__(
        self,
        name: str,
        decoder: Decoder,
        slots: int,
        pool_bytes: int | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.slots = slots
        self.batch = Batch(decoder)
        self.sessions = SessionPool(decoder, slots, pool_bytes)
        self.wake = wake
        self.steps = 0
        self._lock = Lock()  # of _waiting
        self._waiting: deque[Task] = deque()
        self._running: list[Task] = []
        self._turn = 0

    @property
    def waiting(self) -> int:
        """Requests whose turn has not come."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests that are worked on."""
        return len(self._running)

    def add(self, task: Task) -> None:
        """A request comes to the end of the queue."""
        with self._lock:
            self._waiting.append(task)
        self.wake()

    def end_streams(self) -> None:
        """Let live streams say what they have heard, and end; from any thread."""
        with self._lock:
            tasks = [*self._waiting, *self._running]
        for task in tasks:
            task.end()

    def turn(self) -> bool:
        """Some work outside the batch, and one run of it; whether anything was done."""
        self._remove_cancelled()
        self._admit()
        worked = self._work()
        stepped = bool(len(self.batch))
        if stepped:
            self._step()
        running = len(self._running)
        self._remove_done()
        return worked or stepped or len(self._running) < running  # then there is a free slot

    def fail(self, error: BaseException) -> None:
        """End every request with an error."""
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        for task in [*self._running, *waiting]:
            self._end(task, Finished(error=error))

    # -- one turn ----------------------------------------------------------------------------------

    def _remove_cancelled(self) -> None:
        with self._lock:
            gone = [task for task in self._waiting if task.cancelled]
            for task in gone:
                self._waiting.remove(task)
        for task in [*gone, *(task for task in self._running if task.cancelled)]:
            self._end(task, Finished())

    def _admit(self) -> None:
        while True:
            free = self.slots - sum(not task.live for task in self._running)
            with self._lock:
                task = next((task for task in self._waiting if task.live or free > 0), None)
                if task is None:
                    return
                self._waiting.remove(task)
            self._running.append(task)
            self._attempt(task, partial(task.begin, self))

    def _work(self) -> bool:
        """Steps outside the batch, until there are none or others have waited long enough."""
        worked, started = False, time.perf_counter()
        while self._work_once():
            worked = True
            if time.perf_counter() - started >= PAUSE_S:
                break
        return worked

    def _work_once(self) -> bool:
        """One step, of the request that has the fewest answers under way and waited longest."""
        for task in sorted(self._running, key=lambda task: (task.running, task.turn)):
            if task.cancelled:
                continue
            may_add = len(self.batch) < self.slots
            if self._attempt(task, partial(task.work, may_add)):
                self._turn += 1
                task.turn = self._turn
                return True
        return False

    def _step(self) -> None:
        self.batch.max_rows = SHARED_ROWS if len(self.batch) > 1 else ALONE_ROWS
        self.steps += 1
        for generation in self.batch.step():
            for task in self._running:
                if task.owns(generation):
                    self._attempt(task, partial(task.take, generation))
                    break

    def _remove_done(self) -> None:
        for task in list(self._running):
            self._attempt(task, partial(self._end_if_done, task))

    def _end_if_done(self, task: Task) -> None:
        if task.done:
            self._end(task, Finished(task.result()))

    def _attempt(self, task: Task, action: Callable[[], object]) -> object:
        """Do something for a request; an error ends that request alone and counts as work."""
        try:
            return action()
        except Exception as error:
            self._end(task, Finished(error=error))
            return True

    def _end(self, task: Task, finished: Finished) -> None:
        self._running = [other for other in self._running if other is not task]
        try:
            task.close()
        except Exception as error:
            finished = Finished(error=error)
        task.tell(finished)
