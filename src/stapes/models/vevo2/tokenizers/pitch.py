"""Pitch: the median of a voice, the steps between two voices, and shifting by them."""

from __future__ import annotations

import math

import numpy as np

from stapes.errors import AudioError, RequestError
from stapes.models.vevo2.tokenizers.extra import voice_library
from stapes.models.vevo2.voice import F32, SAMPLE_RATE, WHISPER_RATE, Voice

F0_HOP = 256
F0_MIN = 50.0
F0_MAX = 1100.0
_VOICING_THRESHOLD = 0.6
"""Samples at 16 kHz from one estimate to the next, and Hz (the reference's ``extract_f0_hz``)."""

_OCTAVE = 12
_ESTIMATE = 0  # as a number of steps that the caller gives: the same as none


def f0_track(samples_16k: F32) -> F32:
    """Fundamental frequency by Praat's autocorrelation method: f32 [m], Hz, 0 where unvoiced.

    Praat needs three periods of 50 Hz: a recording of less (60 ms) has no estimate, m is 0.
    """
    if samples_16k.size < 3 * WHISPER_RATE / F0_MIN:
        return np.zeros(0, np.float32)
    parselmouth = voice_library("parselmouth", "The estimate of a voice's pitch")
    pitch = parselmouth.Sound(samples_16k.astype(np.float64), WHISPER_RATE).to_pitch_ac(
        time_step=F0_HOP / WHISPER_RATE,
        voicing_threshold=_VOICING_THRESHOLD,
        pitch_floor=F0_MIN,
        pitch_ceiling=F0_MAX,
    )
    track: F32 = pitch.selected_array["frequency"].astype(np.float32)
    return track


def f0_median(voice: Voice) -> float:
    """Median fundamental frequency in Hz, unvoiced estimates taken from the line between voiced.

    Raises:
        AudioError: no part of the recording is voiced.
        RequestError: praat-parselmouth is not installed.
    """
    track = f0_track(voice.samples_16k)
    voiced = np.flatnonzero(track > 0)
    if voiced.size == 0:
        raise AudioError(
            f"{voice.name} has no voiced part in {voice.duration_s:.2f} s, so its pitch cannot be"
            " estimated; give the pitch shift in semitones."
        )
    filled = np.interp(np.arange(track.size), voiced, track[voiced])
    return float(np.median(filled))


def folded_steps(source_hz: float, timbre_hz: float) -> int:
    """Semitones from one pitch to another, to the nearest; octaves beyond the first are left out.

    More than 12 upwards become 0 to 11, more than 12 downwards -11 to 0.
    """
    steps = round(_OCTAVE * math.log2(timbre_hz / source_hz))
    if abs(steps) <= _OCTAVE:
        return steps
    return int(math.fmod(steps, _OCTAVE))


def pitch_steps(
    source: Voice, timbre: Voice, *, same: bool = False, asked: int | None = None
) -> int:
    """Semitones by which a source is shifted so that it lies where the timbre's voice does.

    Args:
        source: the recording that will be shifted.
        timbre: the recording whose pitch it takes.
        same: both are the same file, which needs no shift.
        asked: what the caller wants; None and 0 stand for the estimate, as in the reference.

    Raises:
        AudioError: the estimate was needed, and one of the two has no voiced part.
    """
    if asked is not None and asked != _ESTIMATE:
        return asked
    if same:
        return 0
    return folded_steps(f0_median(source), f0_median(timbre))


def shifted(samples: F32, steps: int) -> F32:
    """Samples at 24 kHz, f32 [n], shifted by semitones and no longer or shorter: f32 [n].

    Raises:
        RequestError: librosa is not installed, or the steps lie beyond five octaves.
    """
    if not -5 * _OCTAVE <= steps <= 5 * _OCTAVE:
        raise RequestError(f"A pitch shift must lie from -60 to 60 semitones, not {steps!r}.")
    if steps == 0:
        return samples
    librosa = voice_library("librosa", "A pitch shift")
    # The phase vocoder's windows have 2048 samples; librosa warns of less.
    padded = np.pad(samples, (0, max(0, 2048 - samples.size)))
    result: F32 = librosa.effects.pitch_shift(padded, sr=SAMPLE_RATE, n_steps=steps)
    return result[: samples.size].astype(np.float32, copy=False)
