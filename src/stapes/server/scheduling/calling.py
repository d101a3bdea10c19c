"""Something short that must be done in the worker's thread, such as aligning a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stapes.decoder import Generation
from stapes.server.scheduling.lane import Lane
from stapes.server.scheduling.task import Task, Tell


class CallTask(Task):
    """Calls a function between two runs of the batch, and tells what it returned."""

    def __init__(self, tell: Tell, function: Callable[[], Any]) -> None:
        super().__init__(tell)
        self._function = function
        self._called = False
        self._result: Any = None

    @property
    def running(self) -> int:
        """See `Task`: it has no answers."""
        return 0

    def begin(self, lane: Lane) -> None:
        """See `Task`."""

    def work(self, may_add: bool) -> bool:
        """See `Task`."""
        del may_add
        if self._called:
            return False
        self._called = True
        self._result = self._function()
        return True

    def owns(self, generation: Generation) -> bool:
        """See `Task`."""
        del generation
        return False

    def take(self, generation: Generation) -> None:
        """See `Task`."""

    @property
    def done(self) -> bool:
        """See `Task`."""
        return self._called

    def result(self) -> Any:
        """See `Task`."""
        return self._result

    def close(self) -> None:
        """See `Task`."""
