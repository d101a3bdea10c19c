"""How a stream works: all its constants in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from stapes.errors import RequestError

CommitRule: TypeAlias = Literal["rollback", "agreement", "final"]
COMMIT_RULES: tuple[CommitRule, ...] = get_args(CommitRule)


@dataclass(frozen=True)
class StreamPolicy:
    """When a stream looks at its audio, and when its text is settled.

    What is committed, and so the final text, depends on the audio and these numbers alone: not on
    how the audio was cut when it was fed, nor on the speed of the machine, unless `max_lag_s` is
    set. What the machine's speed decides is how many of the steps between are taken.

    Attributes:
        step_s: seconds of audio from one look at an utterance to the next. The published method
            takes 2. When the machine does not keep up, steps are left out, and the stream says so.
        commit_steps: every so many steps text is committed. Such a step is never left out.
        window_s: span of audio that is final once it is over: its mel floor is fixed, its encoder
            rows and their cache are kept. A multiple of the model's window (8 s).
        rollback_tokens: last tokens of a hypothesis that are not committed (published: 5).
        unfixed_steps: first steps of an utterance of which nothing is committed (published: 2).
        new_tokens: budget of new tokens for each step of audio (published: 32).
        commit: "rollback" commits all but the last `rollback_tokens`; "agreement" moreover only
            what the committing step before said, too; "final" commits when an utterance ends.
        max_utterance_s: longest utterance. What goes on longer is cut, and the context begins anew.
        boundary_s: such a cut is made at the quietest point of so many last seconds.
        silence_s: so much silence ends an utterance.
        stall_s: an unfinished stream that gets no audio for so long says so.
        max_lag_s: with more unread audio than this, committing steps are left out as well; the text
            then depends on the machine. None: never.
        max_backlog_s: with more unread audio than this, `feed` takes no more.

    Raises:
        RequestError: a value is out of range.
    """

    step_s: float = 2.0
    commit_steps: int = 2
    window_s: float = 8.0
    rollback_tokens: int = 5
    unfixed_steps: int = 2
    new_tokens: int = 32
    commit: CommitRule = "rollback"
    max_utterance_s: float = 24.0
    boundary_s: float = 4.0
    silence_s: float = 0.8
    stall_s: float = 3.0
    max_lag_s: float | None = None
    max_backlog_s: float = 3600.0

    def __post_init__(self) -> None:
        for name, least, most in _RANGES:
            _require_seconds(name, getattr(self, name), least, most)
        if self.max_lag_s is not None:
            _require_seconds("max_lag_s", self.max_lag_s, self.step_s, math.inf)
        for name, smallest in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
                raise RequestError(f"{name} must be a whole number >= {smallest}, not {value!r}.")
        if self.commit not in COMMIT_RULES:
            raise RequestError(
                f"commit must be one of {', '.join(COMMIT_RULES)}, not {self.commit!r}."
            )
        if self.boundary_s > self.max_utterance_s / 2:
            raise RequestError(
                f"boundary_s must be at most half of max_utterance_s, {self.max_utterance_s:g} s, "
                f"not {self.boundary_s:g}."
            )

    def is_committing(self, step: int) -> bool:
        """Whether the step of an utterance, counted from 1, may commit text."""
        if self.commit == "final" or step <= self.unfixed_steps:
            return False
        return step % self.commit_steps == 0 and step * self.step_s <= self.settled_s

    @property
    def settled_s(self) -> float:
        """The seconds of an utterance that no cut can take from it: only these are committed."""
        return self.max_utterance_s - self.boundary_s


_RANGES = (
    ("step_s", 0.1, 60.0),
    ("window_s", 1.0, 300.0),
    ("max_utterance_s", 2.0, 300.0),
    ("boundary_s", 0.5, 150.0),
    ("silence_s", 0.1, 10.0),
    ("stall_s", 0.1, math.inf),
    ("max_backlog_s", 1.0, math.inf),
)
_COUNTS = (("commit_steps", 1), ("rollback_tokens", 0), ("unfixed_steps", 0), ("new_tokens", 1))


def _require_seconds(name: str, value: object, least: float, most: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:  # type: ignore[operator]
        raise RequestError(f"{name} must lie between {least:g} and {most:g} s, not {value!r}.")
