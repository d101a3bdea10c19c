"""Progress on standard error: a bar on a terminal, nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.progress import Progress as Bar

    from stapes.models.interface import Progress
    from stapes.models.vevo2.sound import OnProgress, VoiceProgress

BytesDone = Callable[[int], None]


class Reporter(Protocol):
    """Shows what is being done, for as long as a `with` block lasts."""

    def loading(self, model: str) -> AbstractContextManager[None]:
        """A model is being loaded."""
        ...

    def converting(self, model: str) -> AbstractContextManager[None]:
        """A model is being converted."""
        ...

    def recording(self, file: str) -> AbstractContextManager[Progress | None]:
        """A recording is being transcribed; yields the callback for its progress."""
        ...

    def speaking(self, file: str) -> AbstractContextManager[OnProgress | None]:
        """A sound is being made; yields the callback for its progress."""
        ...

    def hashing(self, file: str, size: int) -> AbstractContextManager[BytesDone | None]:
        """A file is being read; yields the callback for the bytes that have been."""
        ...


def reporter_for_stderr() -> Reporter:
    """The bar when standard error is a terminal, else silence."""
    stderr = sys.stderr
    return TerminalReporter() if stderr is not None and stderr.isatty() else SilentReporter()


class SilentReporter:
    """Shows nothing."""

    @contextmanager
    def loading(self, model: str) -> Iterator[None]:
        """Show nothing."""
        yield

    @contextmanager
    def converting(self, model: str) -> Iterator[None]:
        """Show nothing."""
        yield

    @contextmanager
    def recording(self, file: str) -> Iterator[Progress | None]:
        """Show nothing and ask for no progress."""
        yield None

    @contextmanager
    def speaking(self, file: str) -> Iterator[OnProgress | None]:
        """Show nothing and ask for no progress."""
        yield None

    @contextmanager
    def hashing(self, file: str, size: int) -> Iterator[BytesDone | None]:
        """Show nothing and ask for no progress."""
        yield None


class TerminalReporter:
    """A spinner, then a bar for each recording; both vanish before the answer is printed."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)

    @contextmanager
    def loading(self, model: str) -> Iterator[None]:
        """Show a spinner."""
        with self._spinner("Loading", model):
            yield

    @contextmanager
    def converting(self, model: str) -> Iterator[None]:
        """Show a spinner."""
        with self._spinner("Converting", model):
            yield

    def _spinner(self, what: str, model: str) -> AbstractContextManager[object]:
        from rich.markup import escape

        return self._console.status(f"{what} {escape(model)}")

    @contextmanager
    def recording(self, file: str) -> Iterator[Progress | None]:
        """Show a bar in seconds of audio."""
        with self._bar("{task.completed:.0f} of {task.total:.0f} s") as bar:
            task = bar.add_task(file, total=0.0)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def speaking(self, file: str) -> Iterator[OnProgress | None]:
        """Show a bar over the steps of flow matching of all pieces."""
        with self._bar("{task.percentage:.0f} %") as bar:
            task = bar.add_task(file, total=1.0)

            def show(progress: VoiceProgress) -> None:
                bar.update(task, completed=progress.share, description=spoken(file, progress))

            yield show

    @contextmanager
    def hashing(self, file: str, size: int) -> Iterator[BytesDone | None]:
        """Show a bar in bytes."""
        with self._bar("{task.percentage:.0f} %") as bar:
            task = bar.add_task(file, total=size)
            yield lambda done: bar.update(task, completed=done)

    def _bar(self, figures: str) -> Bar:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn(figures),
            TimeRemainingColumn(),
        )
        return Bar(*columns, console=self._console, transient=True)


def spoken(file: str, progress: VoiceProgress) -> str:
    """What is being done, before the bar."""
    piece = f", piece {progress.piece + 1} of {progress.pieces}" if progress.pieces > 1 else ""
    if progress.stage == "codes":
        return f"{file}{piece}: {progress.done} codes"
    return f"{file}{piece}: step {progress.done} of {progress.total}"
