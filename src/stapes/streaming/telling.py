"""Events: when they are due, with their times and lags."""

from __future__ import annotations

from collections.abc import Callable

from stapes.audio.recording import SAMPLE_RATE
from stapes.audio.speech import SpeechDetector
from stapes.models.transcript import Word
from stapes.streaming.events import StreamEvent
from stapes.streaming.hypothesis import Hypothesis, Settled
from stapes.streaming.intake import Intake
from stapes.streaming.pace import Pace
from stapes.streaming.policy import StreamPolicy
from stapes.streaming.utterances import Task


class Teller:
    """Collects the events of one stream.

    Args:
        policy: see `StreamPolicy`.
        intake: knows when audio came.
        clock: that of the intake.
    """

    def __init__(self, policy: StreamPolicy, intake: Intake, clock: Callable[[], float]) -> None:
        self._policy, self._intake, self._clock = policy, intake, clock
        self._pace = Pace(policy)
        self._events: list[StreamEvent] = []
        self._shown = False  # whether a partial text stands that no event has replaced
        self._stalled = False
        self._failed: str | None = None  # what is known of the detector's failure

    def take(self) -> list[StreamEvent]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def pace(self, task: Task) -> None:
        """A look has been taken: say when there is no time for all of them."""
        said = self._pace.take(task, self._lag_s(task.end))
        if said is not None and not self._intake.ended:
            self.notice(said, task)

    def committed(self, settled: Settled, task: Task, hypothesis: Hypothesis) -> None:
        """Text that will not change any more."""
        self._events.append(
            StreamEvent(
                "committed",
                settled.text,
                settled.start / SAMPLE_RATE,
                settled.end / SAMPLE_RATE,
                hypothesis.language,
                self._lag_s(settled.end),
                task.utterance,
                self._step_s,
            )
        )

    def partial(self, text: str, task: Task, hypothesis: Hypothesis) -> None:
        """What is heard behind it; "" is said only when there is something to take back."""
        if text or self._shown:
            self._events.append(
                StreamEvent(
                    "partial",
                    text,
                    min(hypothesis.settled_at, task.end) / SAMPLE_RATE,
                    task.end / SAMPLE_RATE,
                    hypothesis.language,
                    self._lag_s(task.end),
                    task.utterance,
                    self._step_s,
                )
            )
        self._shown = bool(text)

    def final(self, task: Task, hypothesis: Hypothesis, words: tuple[Word, ...]) -> None:
        """An utterance is over."""
        self._shown = False
        self._events.append(
            StreamEvent(
                "final",
                hypothesis.committed_text,
                task.start / SAMPLE_RATE,
                task.end / SAMPLE_RATE,
                hypothesis.language,
                self._lag_s(task.end),
                task.utterance,
                finish_reason=hypothesis.finish_reason,
                words=words,
                token_ids=tuple(hypothesis.forced_ids),
            )
        )

    def notice(self, sentence: str, task: Task | None = None) -> None:
        """A sentence for the user, about an utterance or the stream as it is now."""
        now = self._intake.total
        start, end = (now, now) if task is None else (task.start, task.end)
        number = -1 if task is None else task.utterance
        self._events.append(
            StreamEvent(
                "notice", sentence, start / SAMPLE_RATE, end / SAMPLE_RATE, utterance=number
            )
        )

    def watch(self, waits: bool, detector: SpeechDetector | None) -> None:
        """Say once when no audio comes though it is waited for, and that a detector has failed."""
        idle_s = self._clock() - self._intake.last_s
        if idle_s < self._policy.stall_s:
            self._stalled = False
        elif waits and not self._stalled:
            self._stalled = True
            self.notice(f"No audio has come for {idle_s:.1f} s.")
        failed = getattr(detector, "note", None)
        if failed is not None and failed != self._failed:
            self._failed = failed
            self.notice(failed)

    @property
    def _step_s(self) -> float:
        return self._pace.steps * self._policy.step_s

    def _lag_s(self, sample: int) -> float:
        return max(0.0, self._clock() - self._intake.came_s(sample))
