"""A recording as Vevo2 reads it: 24 kHz for the chromagram and the mel, 16 kHz for Whisper."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stapes.audio.mix import resample
from stapes.audio.source import AudioSource
from stapes.audio.stream import open_stream
from stapes.errors import AudioError

F32 = NDArray[np.float32]

SAMPLE_RATE = 24_000
"""Hz of everything but Whisper's input (``preprocess.sample_rate`` of the published configs)."""

HOP = 480
"""Samples of a frame (``preprocess.hop_size``): 50 frames a second."""

WHISPER_RATE = 16_000
"""Hz of Whisper's input, and of the pitch estimate."""


@dataclass(frozen=True, eq=False)
class Voice:
    """One recording.

    Attributes:
        name: how messages call it.
        samples: f32 [n], n >= 480, mono, 24 kHz, finite; the level is the recording's own.
        warnings: sentences about what was lost in reading or looks wrong.
    """

    name: str
    samples: F32
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.samples.ndim != 1 or self.samples.size < HOP:
            raise AudioError(
                f"{self.name} is too short: {self.samples.size} samples at 24 kHz, where a frame"
                f" has {HOP} (20 ms)."
            )

    @property
    def frames(self) -> int:
        """Whole frames of 480 samples: the length of every feature of this recording."""
        return self.samples.size // HOP

    @property
    def duration_s(self) -> float:
        """Seconds."""
        return self.samples.size / SAMPLE_RATE

    @cached_property
    def samples_16k(self) -> F32:
        """The same at 16 kHz, made from the samples at 24 kHz: f32 [about 2 n / 3]."""
        return resample(self.samples, SAMPLE_RATE, WHISPER_RATE)


def read_voice(source: AudioSource | ArrayLike, sample_rate: int | None = None) -> Voice:
    """Decode a recording, average its channels and resample it to 24 kHz.

    The level is left as it is, peaks beyond 1 included, as librosa's loader does.

    Args:
        source: a path, the bytes of a file or a binary stream; or samples as for
            `stapes.audio.audio_from_array`.
        sample_rate: Hz of the samples, for an array and nothing else.

    Raises:
        AudioError: nothing usable, or less than a frame (20 ms).
        RequestError: ``source`` is of a wrong type, or its rate is missing or out of place.
    """
    with open_stream(source, sample_rate, target_rate=SAMPLE_RATE) as stream:
        samples = np.concatenate(list(stream))
        return Voice(stream.name, samples, stream.warnings)
