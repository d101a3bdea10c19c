"""A recording that is being transcribed: pieces come out, figures add up meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stapes.audio.pieces import Piece, pieces_of
from stapes.audio.speech import SpeechDetector, speech_detector
from stapes.audio.stream import open_stream
from stapes.errors import AudioError
from stapes.graph import NoTracer
from stapes.options import TranscribeOptions

if TYPE_CHECKING:
    from stapes.models.interface import AudioSource


@dataclass(frozen=True)
class ReadingLimits:
    """What one recording may cost to read; files from strangers may be small and endless.

    Attributes:
        most_s: seconds of sound.
        most_work_s: seconds of decoding and looking for speech.
    """

    most_s: float
    most_work_s: float

    def check(self, seconds: float, work_s: float) -> None:
        """AudioError when a recording has, or promises, more."""
        if seconds > self.most_s:
            raise AudioError(
                f"The recording has {seconds:.0f} s of sound or more; {self.most_s:.0f} s are "
                "permitted."
            )
        if work_s > self.most_work_s:
            raise AudioError(
                f"Decoding the recording takes too long: {work_s:.0f} s so far, "
                f"{self.most_work_s:.0f} s are permitted."
            )


class Recording:
    """What a transcription reads, for as long as a `with` block lasts.

    Args:
        source: a path, bytes, a binary file, or an array of samples with its rate.
        sample_rate: of an array.
        options: longest piece, and whether to look for speech.
        tracer: records the stage "audio".
        check: called along the way with the seconds of sound that it has or promises, and those of
            work so far; what it raises ends the reading. `ReadingLimits.check` is one.

    Attributes:
        audio_s: seconds spent on decoding and on looking for speech so far.
    """

    def __init__(
        self,
        source: AudioSource,
        sample_rate: int | None,
        options: TranscribeOptions,
        tracer: NoTracer,
        check: Callable[[float, float], None] | None = None,
    ) -> None:
        self._check = check
        self._started = time.perf_counter()
        self._source, self._sample_rate = source, sample_rate
        self._options = options
        self._tracer = tracer
        self._stack = ExitStack()
        self._notes: list[str] = []
        self._detector: SpeechDetector | None = None
        self._energy, self._samples = 0.0, 0
        self.audio_s = 0.0

    def __enter__(self) -> Recording:
        opened = open_stream(self._source, self._sample_rate)
        self._stream = self._stack.enter_context(opened)
        self._count(time.perf_counter() - self._started)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def duration_s(self) -> float:
        """Seconds read so far; of the whole recording once it has been read."""
        return self._stream.duration_s

    @property
    def expected_s(self) -> float:
        """Seconds of the whole recording, as far as they are known."""
        return max(self._stream.duration_s, self._stream.expected_s or 0.0)

    @property
    def rms(self) -> float:
        """Root mean square of what has been read, before any normalisation."""
        return float(np.sqrt(self._energy / self._samples)) if self._samples else 0.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was lost or looks wrong, once the recording has been read."""
        failed = getattr(self._detector, "note", None)
        return (*self._stream.warnings, *self._notes, *([failed] if failed else []))

    @property
    def total_s(self) -> float:
        """Seconds since the recording was opened."""
        return time.perf_counter() - self._started

    def pieces(self) -> Iterator[Piece]:
        """Pieces of at most `chunk_seconds`, in order, each as soon as it is known."""
        detector, note = speech_detector() if self._options.vad else (None, None)
        self._detector = detector
        self._notes += [note] if note else []
        source = pieces_of(self._measured(), self._options.chunk_seconds, detector)
        while True:
            self._since = started = time.perf_counter()
            piece = next(source, None)
            self._count(time.perf_counter() - started)
            if piece is None:
                return
            yield piece

    def _count(self, seconds: float) -> None:
        ended = time.perf_counter()
        self.audio_s += seconds
        self._tracer.stage("audio", ended - seconds, ended)

    def _measured(self) -> Iterator[NDArray[np.float32]]:
        for block in self._stream:
            if self._check is not None:
                self._check(self.expected_s, self.audio_s + time.perf_counter() - self._since)
            self._energy += float(np.sum(np.square(block, dtype=np.float64)))
            self._samples += block.size
            yield block
