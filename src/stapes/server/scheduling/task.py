"""A request, as the worker sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stapes.errors import StapesError

if TYPE_CHECKING:
    from stapes.decoder import Generation
    from stapes.server.scheduling.lane import Lane


class BusyError(StapesError):
    """There is no place for another request now; `retry_s` says when it may be worth a try."""

    def __init__(self, sentence: str, retry_s: int) -> None:
        super().__init__(sentence)
        self.retry_s = retry_s


@dataclass(frozen=True)
class Update:
    """Something of a request's answer: text, a piece, events of a stream."""

    value: Any


@dataclass(frozen=True)
class Finished:
    """The last thing that is told of a request: its result, or the error that ended it.

    Both are None for a request that was cancelled.
    """

    value: Any = None
    error: BaseException | None = None


Tell = Callable[[Update | Finished], None]


class Task(ABC):
    """A request under way. All but `cancel` and `end` belongs to the worker's thread.

    Args:
        tell: is called, in the worker's thread, with updates and one `Finished`; it must neither
            block nor raise.

    Attributes:
        cancelled: whether the client has left.
        turn: when it was last given work, for fairness.
        live: whether it runs at once and takes no slot.
    """

    live = False

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self.cancelled = False
        self.turn = 0

    def cancel(self) -> None:
        """Ask, from any thread, that the request end; the worker does it before its next run."""
        self.cancelled = True

    def end(self) -> None:  # noqa: B027 - most requests end by themselves
        """Ask, from any thread, a request that could go on for ever to come to its end."""

    @property
    @abstractmethod
    def running(self) -> int:
        """Answers that it has in the batch."""

    @abstractmethod
    def begin(self, lane: Lane) -> None:
        """Its turn has come; quick work only."""

    @abstractmethod
    def work(self, may_add: bool) -> bool:
        """One short step outside the batch; False when there is nothing to do now.

        Args:
            may_add: whether it may put an answer into the batch beside one that it has there.
        """

    @abstractmethod
    def owns(self, generation: Generation) -> bool:
        """Whether an answer in the batch is its own."""

    @abstractmethod
    def take(self, generation: Generation) -> None:
        """An answer of its own is finished. What it raises ends this request alone."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether nothing is left to do."""

    @abstractmethod
    def result(self) -> Any:
        """What is told at the end, once it is `done`."""

    @abstractmethod
    def close(self) -> None:
        """Leave the batch and give everything back, however it ended; called once."""
