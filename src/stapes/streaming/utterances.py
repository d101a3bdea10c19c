"""Audio -> what is to be done with it: looks at an utterance, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE
from stapes.audio.segment import HOP, SMOOTHING_HOPS, quietest
from stapes.audio.speech import FRAME, SpeechDetector, SpeechRule, SpeechTracker
from stapes.audio.window import SampleWindow
from stapes.streaming.policy import StreamPolicy

F32 = NDArray[np.float32]

_MARGIN = SMOOTHING_HOPS // 2 * HOP  # what the search for a quiet point sees behind its range


@dataclass(frozen=True)
class Task:
    """A look at an utterance: samples [start, end) of the stream.

    Attributes:
        utterance: counts them from 0.
        step: counts looks from 1; 0 for the last one, which makes the text final.
        commits: whether text is committed.
    """

    utterance: int
    start: int
    end: int
    step: int
    commits: bool

    @property
    def is_final(self) -> bool:
        """Whether the utterance is over."""
        return self.step == 0

    @property
    def is_optional(self) -> bool:
        """Whether nothing but a partial text comes of it."""
        return not self.is_final and not self.commits


class Segmenter:
    """Hears a stream and cuts it into utterances; what comes of it depends on the samples alone.

    An utterance begins and ends with speech, by `SpeechRule`, with the policy's silence; without a
    detector everything is speech. One that grows too long is cut at a quiet point. The samples that
    may still be needed are in `window`.

    Args:
        policy: see `StreamPolicy`.
        detector: of this stream alone; None takes everything for speech.
    """

    def __init__(self, policy: StreamPolicy, detector: SpeechDetector | None) -> None:
        rule = replace(SpeechRule(), min_silence_s=policy.silence_s)
        rule = replace(rule, after_s=min(rule.after_s, rule.min_silence_s))
        self._policy = policy
        self._step = round(policy.step_s * SAMPLE_RATE)
        self._longest = round(policy.max_utterance_s * SAMPLE_RATE)
        self._boundary = round(policy.boundary_s * SAMPLE_RATE)
        self._back = int((rule.before_s + rule.min_speech_s) * SAMPLE_RATE) + 2 * FRAME
        self._detector = detector
        self._tracker = SpeechTracker(rule)
        self._waiting = np.zeros(0, np.float32)  # less than a frame
        self.window = SampleWindow()
        self.heard = 0  # samples that were looked at, all of those in the window
        self._open: int | None = None  # where the open utterance starts
        self._looks = 0  # at it so far
        self._closed = 0  # where the last one ended
        self._utterances = 0  # closed so far

    def hear(self, block: F32) -> Iterator[Task]:
        """Take the next samples, f32 [n], and say what is to be done, in order."""
        samples = np.concatenate([self._waiting, block])
        whole = samples.size // FRAME * FRAME
        self._waiting = samples[whole:]
        if whole:
            self.window.append(samples[:whole])
        for frame in samples[:whole].reshape(-1, FRAME):
            self.heard += FRAME
            yield from self._hear(frame)

    def finish(self) -> Iterator[Task]:
        """The stream is over."""
        rest, self._waiting = self._waiting, self._waiting[:0]
        if rest.size:
            self.window.append(rest)
            self.heard += rest.size
            yield from self._hear(np.pad(rest, (0, FRAME - rest.size)))
        if self._open is not None:
            yield from self._close(self.heard)

    def forget(self, position: int) -> None:
        """Samples before `position` will not be asked for."""
        oldest = max(0, self.heard - self._back) if self._open is None else self._open
        self.window.forget(min(position, oldest))

    def _hear(self, frame: F32) -> Iterator[Task]:
        end = self._speech_ended(frame)
        if self._open is None and self._speech_start is not None:
            self._open, self._looks = max(self._speech_start, self._closed), 0
        if self._open is None:
            return
        if end is not None:
            yield from self._close(min(end, self.heard))
            return
        yield from self._due()
        if self.heard - self._open >= self._longest + _MARGIN:
            cut = self._quiet_point(self._open)
            yield from self._close(cut)
            self._open, self._looks = cut, 0
            yield from self._due()

    @property
    def _speech_start(self) -> int | None:
        return 0 if self._detector is None else self._tracker.start

    def _speech_ended(self, frame: F32) -> int | None:
        if self._detector is None:
            return None
        return self._tracker.hear(self._detector.probability(frame))

    def _due(self) -> Iterator[Task]:
        """The looks at the open utterance that have become possible."""
        start = self._open
        while start is not None and start + (self._looks + 1) * self._step <= self.heard:
            self._looks += 1
            end = start + self._looks * self._step
            commits = self._policy.is_committing(self._looks)
            yield Task(self._utterances, start, end, self._looks, commits)

    def _quiet_point(self, start: int) -> int:
        held = self.window.part(start, start + self._longest + _MARGIN)
        return start + quietest(held, self._longest - self._boundary, self._longest)

    def _close(self, end: int) -> Iterator[Task]:
        start, self._open = self._open, None
        if start is None:
            return
        self._closed = max(start, end)  # silence may have begun before the last cut
        yield Task(self._utterances, start, self._closed, 0, True)
        self._utterances += 1
