"""A recording that a voice, a style or a melody is taken from; its codes are computed once."""

from __future__ import annotations

from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stapes.audio.source import AudioSource
from stapes.errors import AudioError, RequestError
from stapes.models.vevo2.acoustic.config import MelSpec
from stapes.models.vevo2.acoustic.mel import normalised_mel
from stapes.models.vevo2.tokenizers.pitch import f0_median, folded_steps
from stapes.models.vevo2.tokenizers.tokenizer import (
    ContentStyleTokenizer,
    ProsodyTokenizer,
    VoiceFeatures,
)
from stapes.models.vevo2.voice import Voice, read_voice

Codes = NDArray[np.int32]
F32 = NDArray[np.float32]

Recording: TypeAlias = "Reference | AudioSource | ArrayLike"


class Reference:
    """One recording with what is said or sung in it.

    It keeps the codes and the mel that were computed from it, so that one reference may serve any
    number of requests of one model. May be used from several threads. It keeps no model alive.

    Args:
        voice: the recording.
        text: what is said or sung; "" where it is not known.
    """

    def __init__(self, voice: Voice, text: str = "") -> None:
        if not isinstance(text, str):
            raise RequestError(f"A recording's text must be text, not {type(text).__name__}.")
        self.voice = voice
        self.text = text
        self._features = VoiceFeatures(voice)
        self._codes: WeakKeyDictionary[object, dict[object, Codes]] = WeakKeyDictionary()
        self._mel: dict[MelSpec, F32] = {}
        self._f0: float | None = None
        self._firsts: dict[int, Reference] = {}

    @property
    def name(self) -> str:
        """How messages call it."""
        return self.voice.name

    @property
    def seconds(self) -> float:
        """Length."""
        return self.voice.duration_s

    def content_style(self, tokenizer: ContentStyleTokenizer, pitch_steps: int = 0) -> Codes:
        """i32 [codes], 12.5 a second."""
        known = self._codes.setdefault(tokenizer, {})
        if pitch_steps not in known:
            known[pitch_steps] = tokenizer.codes(self._shifted(pitch_steps))
        return known[pitch_steps]

    def prosody(
        self, tokenizer: ProsodyTokenizer, pitch_steps: int = 0, duration_s: float | None = None
    ) -> Codes:
        """i32 [codes], 6.25 a second; the recording may be stretched to another duration."""
        known, key = self._codes.setdefault(tokenizer, {}), (pitch_steps, duration_s)
        if key not in known:
            known[key] = tokenizer.codes(self._shifted(pitch_steps), duration_s)
        return known[key]

    def mel(self, spec: MelSpec) -> F32:
        """f32 [frames, mels], normalised."""
        if spec not in self._mel:
            self._mel[spec] = normalised_mel(self.voice.samples, spec)
        return self._mel[spec]

    def steps_to(self, other: Reference) -> int:
        """Semitones from this recording's median pitch to another's, whole octaves left out.

        0 where both are the same recording. AudioError when one has no voiced part.
        """
        if self.is_same(other):
            return 0
        return folded_steps(self.f0_hz, other.f0_hz)

    @property
    def f0_hz(self) -> float:
        """Median pitch. AudioError without a voiced part."""
        if self._f0 is None:
            self._f0 = f0_median(self.voice)
        return self._f0

    def is_same(self, other: Reference) -> bool:
        """Whether both have the same samples."""
        return self is other or np.array_equal(self.voice.samples, other.voice.samples)

    def cut(self, start: int, stop: int) -> Reference:
        """Samples start to stop - 1 as a reference of their own; its text is not known."""
        return Reference(Voice(self.name, self.voice.samples[start:stop]))

    def first(self, samples: int) -> Reference:
        """So many samples of its beginning; the same object each time."""
        if samples not in self._firsts:
            self._firsts[samples] = self.cut(0, samples)
        return self._firsts[samples]

    def _shifted(self, pitch_steps: int) -> VoiceFeatures:
        return self._features.shifted_by(pitch_steps) if pitch_steps else self._features


def read_reference(
    source: Recording, text: str | None = None, sample_rate: int | None = None
) -> Reference:
    """A reference from a path, bytes, a stream or samples; one that is made already is kept.

    Raises:
        AudioError: nothing usable, silent, or less than a frame.
        RequestError: an argument is of a wrong type, or a reference is given another text.
    """
    if isinstance(source, Reference):
        if text is not None and text != source.text:
            raise RequestError(f"{source.name} has a text of its own already.")
        return source
    voice = read_voice(source, sample_rate)
    if not voice.samples.any():
        raise AudioError(f"{voice.name} is silent: all {voice.samples.size} samples are 0.")
    return Reference(voice, text or "")
