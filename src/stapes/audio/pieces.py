"""A recording, block by block -> pieces of speech for a model, in memory that does not grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.audio.normalise import normalise
from stapes.audio.recording import SAMPLE_RATE
from stapes.audio.segment import MIN_PIECE_SECONDS, split_at_quiet
from stapes.audio.speech import FRAME, SpeechDetector, SpeechRule, SpeechTracker
from stapes.audio.window import SampleWindow
from stapes.errors import RequestError

F32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Piece:
    """A piece of a recording.

    Attributes:
        start_s, end_s: seconds of the recording.
        samples: f32 [n], mono 16 kHz, within [-1, 1]: divided by the piece's own peak where that
            exceeds 1, for the peak of the whole is not known while it is read.
    """

    start_s: float
    end_s: float
    samples: F32


def pieces_of(
    blocks: Iterable[F32],
    max_seconds: float = 30.0,
    detector: SpeechDetector | None = None,
    rule: SpeechRule | None = None,
) -> Iterator[Piece]:
    """Cut a recording into pieces, which depend on the samples alone and not on the blocks.

    With a detector, pieces hold the stretches of speech: neighbours together, as long as the gaps
    are short and the whole is no longer than a piece may be; what lies between is left out. Without
    one, they cover everything. What is longer is cut at quiet points (see `split_at_quiet`).

    Args:
        blocks: f32 [n] each, mono 16 kHz.
        max_seconds: longest piece, at least 1 s.
        detector: tells speech, of this recording alone.
        rule: how; by default `SpeechRule()`.

    Raises:
        RequestError: max_seconds is below 1 or not finite.
    """
    if not MIN_PIECE_SECONDS <= max_seconds < float("inf"):
        raise RequestError(
            f"max_seconds must be at least {MIN_PIECE_SECONDS}, not {max_seconds!r}."
        )
    if detector is None:
        yield from _everything(blocks, max_seconds)
        return
    cutter = _SpeechCutter(max_seconds, detector, rule or SpeechRule())
    for block in blocks:
        yield from cutter.feed(block)
    yield from cutter.finish()


def _piece(samples: F32, start: int) -> Piece:
    end = start + samples.size
    return Piece(start / SAMPLE_RATE, end / SAMPLE_RATE, normalise(samples, "The recording"))


def _cut(samples: F32, start: int, max_seconds: float) -> Iterator[Piece]:
    """All of a stretch, cut where it is longer than a piece may be."""
    for span in split_at_quiet(samples, max_seconds):
        yield _piece(samples[span.start : span.end].copy(), start + span.start)


def _everything(blocks: Iterable[F32], max_seconds: float) -> Iterator[Piece]:
    window, longest = SampleWindow(), int(max_seconds * SAMPLE_RATE)
    for block in blocks:
        window.append(block)
        # With twice the longest piece at hand a cut is the same whatever follows.
        while window.end - window.start >= 2 * longest:
            held = window.part(window.start, window.end)
            first = split_at_quiet(held, max_seconds)[0]
            yield _piece(held[: first.end].copy(), window.start)
            window.forget(window.start + first.end)
    held = window.part(window.start, window.end)
    if held.size:
        yield from _cut(held, window.start, max_seconds)


class _SpeechCutter:
    """Collects stretches of speech into the piece that is open."""

    def __init__(self, max_seconds: float, detector: SpeechDetector, rule: SpeechRule) -> None:
        self._max_seconds = max_seconds
        self._longest = int(max_seconds * SAMPLE_RATE)
        self._join = int(rule.join_s * SAMPLE_RATE)
        self._back = int((rule.before_s + rule.min_speech_s) * SAMPLE_RATE) + 2 * FRAME
        self._detector = detector
        self._tracker = SpeechTracker(rule)
        self._window = SampleWindow()
        self._heard = 0  # samples that the detector has seen
        self._waiting = np.zeros(0, np.float32)  # less than a frame
        self._open: int | None = None  # where the open piece starts
        self._closed = 0  # where its last stretch of speech that has ended did so
        self._given = 0  # nothing before here is given again

    def feed(self, block: F32) -> Iterator[Piece]:
        """The pieces that are complete with this block."""
        self._window.append(block)
        samples = np.concatenate([self._waiting, block])
        whole = samples.size // FRAME * FRAME
        for frame in samples[:whole].reshape(-1, FRAME):
            yield from self._hear(frame)
        self._waiting = samples[whole:]

    def finish(self) -> Iterator[Piece]:
        """The last pieces: the recording is over."""
        if self._waiting.size:
            padded = np.zeros(FRAME, np.float32)
            padded[: self._waiting.size] = self._waiting
            yield from self._hear(padded)
        end = self._window.end
        if self._tracker.start is not None:
            yield from self._speech_ended(self._tracker.start, end)
        if self._open is not None:
            yield from self._give(min(self._closed, end))

    def _hear(self, frame: F32) -> Iterator[Piece]:
        before = self._tracker.start
        end = self._tracker.hear(self._detector.probability(frame))
        self._heard += FRAME
        if end is not None and before is not None:
            yield from self._speech_ended(before, min(end, self._heard))
        elif self._tracker.start is not None:
            yield from self._speech_goes_on(self._tracker.start)
        elif self._open is not None and self._heard - self._closed > self._join + self._back:
            yield from self._give(self._closed)
        # While speech goes on a piece is open; where that speech began may be long past.
        self._window.forget(self._heard - self._back if self._open is None else self._open)

    def _speech_goes_on(self, start: int) -> Iterator[Piece]:
        """Give the open piece when this speech is too far from it or makes it too long."""
        if self._open is None:
            self._open = self._closed = max(start, self._given)
            return
        apart = start - self._closed > self._join
        if self._closed > self._open and (apart or self._heard - self._open > self._longest):
            yield from self._give(self._closed)
            self._open = self._closed = max(start, self._given)
        while self._heard - self._open >= 2 * self._longest:
            held = self._window.part(self._open, self._heard)
            cut = self._open + split_at_quiet(held, self._max_seconds)[0].end
            yield _piece(held[: cut - self._open], self._open)
            self._open = self._closed = self._given = cut

    def _speech_ended(self, start: int, end: int) -> Iterator[Piece]:
        yield from self._speech_goes_on(start)
        too_long = self._open is not None and end - self._open > self._longest
        if too_long and self._closed > (self._open or 0):
            yield from self._give(self._closed)
            self._open = max(start, self._given)
        self._closed = end

    def _give(self, end: int) -> Iterator[Piece]:
        """The open piece, up to `end`."""
        start, self._open = self._open, None
        if start is None or end <= start:
            return
        self._given = end
        yield from _cut(self._window.part(start, end), start, self._max_seconds)
