"""A recording that is being transcribed: stretches of sound come out, figures add up meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE, split_at_quiet
from stapes.graph import NoTracer
from stapes.models.audio_source import open_audio
from stapes.options import TranscribeOptions

if TYPE_CHECKING:
    from stapes.models.interface import AudioSource


@dataclass(frozen=True, eq=False)
class _Whole:
    start_s: float
    end_s: float
    samples: NDArray[np.float32]


class Recording:
    """What a transcription reads, for as long as a `with` block lasts."""

    def __init__(
        self,
        source: AudioSource,
        sample_rate: int | None,
        options: TranscribeOptions,
        tracer: NoTracer,
    ) -> None:
        self._started = time.perf_counter()
        self._audio = open_audio(source, sample_rate)
        self._longest_s = options.chunk_seconds
        self.audio_s = time.perf_counter() - self._started
        tracer.stage("audio", self._started, self._started + self.audio_s)
        self.warnings = self._audio.warnings
        self.duration_s = self._audio.duration_s
        self.expected_s = self._audio.samples.size / SAMPLE_RATE
        self.rms = float(np.sqrt(np.mean(np.square(self._audio.samples))))

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    @property
    def total_s(self) -> float:
        """Seconds since the recording was opened."""
        return time.perf_counter() - self._started

    def stretches(self) -> Iterator[_Whole]:
        """Stretches of at most `chunk_seconds`, in order."""
        samples = self._audio.samples
        for span in split_at_quiet(samples, self._longest_s):
            start_s, end_s = span.start / SAMPLE_RATE, span.end / SAMPLE_RATE
            yield _Whole(start_s, end_s, samples[span.start : span.end])
