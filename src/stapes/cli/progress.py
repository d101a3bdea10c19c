"""Progress on standard error: a bar on a terminal, nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from stapes.models.interface import Progress


class Reporter(Protocol):
    """Shows what is being done, for as long as a `with` block lasts."""

    def loading(self, model: str) -> AbstractContextManager[None]:
        """A model is being loaded."""
        ...

    def recording(self, file: str) -> AbstractContextManager[Progress | None]:
        """A recording is being transcribed; yields the callback for its progress."""
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
    def recording(self, file: str) -> Iterator[Progress | None]:
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
        from rich.markup import escape

        with self._console.status(f"Loading {escape(model)}"):
            yield

    @contextmanager
    def recording(self, file: str) -> Iterator[Progress | None]:
        """Show a bar in seconds of audio."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task(file, total=0.0)
            yield lambda done, total: bar.update(task, completed=done, total=total)
