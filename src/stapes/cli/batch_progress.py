"""How far a job has come: a line on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from stapes.batch.task import Outcome

# On a terminal the line is replaced; in a log every line stays.
_TERMINAL_S = 0.2
_LOG_S = 60.0


class JobProgress:
    """Counts outcomes and tells, now and then, how many and how fast."""

    def __init__(
        self, total: int, is_terminal: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total = total
        self._is_terminal = is_terminal
        self._clock = clock
        self._started = self._shown = clock()
        self.finished = 0
        self._failed = 0
        self._audio_s = 0.0

    def count(self, outcome: Outcome) -> None:
        """Take an outcome into account, and show the line when its time has come."""
        self.finished += 1
        self._failed += outcome.kind is not None
        self._audio_s += outcome.audio_s
        now = self._clock()
        if now - self._shown < (_TERMINAL_S if self._is_terminal else _LOG_S):
            return
        self._shown = now
        line = f"stapes: {self.line()}"
        click.echo(
            f"\r\x1b[K{line}" if self._is_terminal else line, nl=not self._is_terminal, err=True
        )

    def clear(self) -> None:
        """Make room on a terminal for another line."""
        if self._is_terminal:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._shown = 0.0

    def line(self) -> str:
        """Counts, speed and the time that is left at this speed."""
        elapsed = max(self._clock() - self._started, 1e-9)
        failed = f" ({self._failed} failed)" if self._failed else ""
        parts = [
            f"{self.finished} of {self._total} recordings{failed}",
            f"{self._audio_s / elapsed:.1f} s of audio a second",
        ]
        if self.finished:
            left = (self._total - self.finished) * elapsed / self.finished
            parts.append(f"{_duration(left)} left")
        return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
