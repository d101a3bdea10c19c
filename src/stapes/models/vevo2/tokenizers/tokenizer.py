"""Recordings -> content-style codes (12.5 Hz) and prosody codes (6.25 Hz)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from stapes.models.vevo2.tokenizers.chroma import chromagram, stretched
from stapes.models.vevo2.tokenizers.coco import CocoEncoder
from stapes.models.vevo2.tokenizers.pitch import shifted
from stapes.models.vevo2.tokenizers.statistics import WhisperStatistics
from stapes.models.vevo2.tokenizers.whisper import WhisperEncoder
from stapes.models.vevo2.voice import F32, HOP, SAMPLE_RATE, Voice

Codes = NDArray[np.int32]


class WhisperFeatures:
    """Whisper's encoder and the statistics by which its features are normalised."""

    def __init__(self, encoder: WhisperEncoder, statistics: WhisperStatistics) -> None:
        self.encoder = encoder
        self.statistics = statistics

    def of(self, voice: Voice) -> F32:
        """Normalised features f32 [voice.frames, d_model]; past 30 s the last row is repeated."""
        features = self.encoder.features(voice.samples_16k)[: voice.frames]
        missing = voice.frames - features.shape[0]
        features = np.pad(features, ((0, missing), (0, 0)), mode="edge")
        return self.statistics.normalised(features)


@dataclass(frozen=True, eq=False)
class VoiceFeatures:
    """What the tokenizers read of a recording, each computed when first asked for, and once.

    Attributes:
        voice: the recording.
        pitch_steps: semitones by which the chromagram's input is shifted. Whisper's never is.
    """

    voice: Voice
    pitch_steps: int = 0
    # Weak, so that a recording that is kept keeps no model.
    _whisper: WeakKeyDictionary[WhisperFeatures, F32] = field(default_factory=WeakKeyDictionary)

    @cached_property
    def chroma(self) -> F32:
        """f32 [voice.frames, 24]."""
        return chromagram(shifted(self.voice.samples, self.pitch_steps), self.voice.frames)

    def whisper(self, whisper: WhisperFeatures) -> F32:
        """f32 [voice.frames, d_model], normalised."""
        if whisper not in self._whisper:
            self._whisper[whisper] = whisper.of(self.voice)
        return self._whisper[whisper]

    def shifted_by(self, pitch_steps: int) -> VoiceFeatures:
        """The same recording with another pitch; Whisper's features are shared."""
        return replace(self, pitch_steps=pitch_steps)


def features_of(voice: Voice | VoiceFeatures) -> VoiceFeatures:
    """The features of a recording, to be given to both tokenizers."""
    return voice if isinstance(voice, VoiceFeatures) else VoiceFeatures(voice)


class ProsodyTokenizer:
    """Codes of a recording's melody and rhythm: one in 160 ms, from the chromagram alone."""

    def __init__(self, coco: CocoEncoder) -> None:
        self.coco = coco

    def codes(self, audio: Voice | VoiceFeatures, target_seconds: float | None = None) -> Codes:
        """Codes of a recording.

        Args:
            audio: the recording, or its features.
            target_seconds: duration to which the chromagram is stretched; None leaves it.

        Returns:
            i32 [frames halved three times, rounded up]: 0 to codebook_size - 1 (511).

        Raises:
            RequestError: no frame would be left, or librosa is not installed.
            NumericError: the network computed values that are not finite.
        """
        features = features_of(audio)
        chroma = features.chroma
        if target_seconds is not None:
            chroma = stretched(chroma, target_seconds / features.voice.duration_s)
        return self.coco.codes(chroma)


class ContentStyleTokenizer:
    """Codes of what is said and how: one in 80 ms, from Whisper's features and the chromagram."""

    def __init__(self, coco: CocoEncoder, whisper: WhisperFeatures) -> None:
        self.coco = coco
        self.whisper = whisper

    @property
    def whisper_seconds(self) -> float:
        """Duration that Whisper hears (30 s); of what follows only the chromagram is read."""
        return self.whisper.encoder.positions * HOP / SAMPLE_RATE

    def warnings(self, voice: Voice) -> tuple[str, ...]:
        """Sentences about what the codes of a recording will lack."""
        if voice.duration_s <= self.whisper_seconds:
            return ()
        return (
            f"The recording lasts {voice.duration_s:.1f} s, of which Whisper hears the first"
            f" {self.whisper_seconds:g}; what is said after them is lost.",
        )

    def codes(self, audio: Voice | VoiceFeatures) -> Codes:
        """Codes of a recording.

        Args:
            audio: the recording, or its features.

        Returns:
            i32 [frames halved twice, rounded up]: 0 to codebook_size - 1 (16383).

        Raises:
            RequestError: librosa is not installed.
            NumericError: a network computed values that are not finite.
        """
        features = features_of(audio)
        return self.coco.codes(features.chroma, features.whisper(self.whisper))
