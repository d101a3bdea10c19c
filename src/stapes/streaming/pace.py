"""Whether a stream keeps up: how much audio lies between the looks that it takes."""

from __future__ import annotations

from stapes.streaming.policy import StreamPolicy
from stapes.streaming.utterances import Task

_CALM = 5  # looks in time until it is said that steps are short again


class Pace:
    """Watches the looks at utterances; steps that were left out make the step longer.

    Args:
        policy: see `StreamPolicy`.

    Attributes:
        steps: steps of audio from the look before to the last one.
    """

    def __init__(self, policy: StreamPolicy) -> None:
        self._policy = policy
        self._utterance = -1
        self._before = 0  # number of the look before
        self._said = 1
        self._in_time = 0
        self.steps = 1

    def take(self, task: Task, lag_s: float) -> str | None:
        """A look is taken, so many seconds behind its audio; a sentence when that is news.

        Audio that comes in one piece makes longer steps, too, and no lag: that is no news.
        """
        if task.utterance != self._utterance:
            self._utterance, self._before = task.utterance, 0
        if task.is_final:
            return None
        self.steps, self._before = task.step - self._before, task.step
        if self.steps > self._said and lag_s > self._policy.step_s:
            self._said, self._in_time = self.steps, 0
            return (
                "The machine does not keep up: a step now takes "
                f"{self.steps * self._policy.step_s:g} s of audio, not {self._policy.step_s:g}."
            )
        self._in_time = self._in_time + 1 if self.steps == 1 else 0
        if self._said > 1 and self._in_time >= _CALM:
            self._said = 1
            return f"A step takes {self._policy.step_s:g} s of audio again."
        return None
