"""The chromagram: how the energy of each frame is spread over 24 classes of pitch.

librosa computes it, as in the reference, so that both are equal by construction. Only the estimate
of the tuning is called in two steps, because librosa warns where a recording has no tone at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stapes.errors import RequestError
from stapes.models.vevo2.tokenizers.extra import voice_library
from stapes.models.vevo2.voice import F32, HOP, SAMPLE_RATE

N_CHROMA = 24
N_FFT = 1920
"""Classes of pitch, and samples of a window (``chromagram_dim``, ``preprocess.n_fft``)."""

_TUNING_RESOLUTION = 0.01  # of a class: the default of librosa.estimate_tuning


def chromagram(samples: F32, frames: int) -> F32:
    """Chroma of a recording.

    Args:
        samples: f32 [n], n > 0, mono, 24 kHz.
        frames: rows wanted; missing ones repeat the last.

    Returns:
        f32 [frames, 24], each row divided by its largest value; zeros where there is silence.

    Raises:
        RequestError: librosa is not installed.
    """
    librosa = voice_library("librosa", "The chromagram")
    # librosa warns of less than one window; zeros beyond the end are what it adds in any case, and
    # the frames that they bring are cut off again.
    padded = np.pad(samples, (0, max(0, N_FFT - samples.size)))
    spectrum = librosa.stft(padded, n_fft=N_FFT, hop_length=HOP, win_length=N_FFT)
    power = np.abs(spectrum[:, : 1 + samples.size // HOP]) ** 2
    chroma: F32 = librosa.feature.chroma_stft(
        S=power, sr=SAMPLE_RATE, n_fft=N_FFT, n_chroma=N_CHROMA, tuning=_tuning(librosa, power)
    ).T
    rows = chroma[:frames].astype(np.float32, copy=False)
    return np.pad(rows, ((0, frames - rows.shape[0]), (0, 0)), mode="edge")


def stretched(chroma: F32, ratio: float) -> F32:
    """Chroma of another duration, by linear interpolation over time.

    The centres of the new rows are spread evenly over the old ones, in f32 (torch's ``interpolate``
    with ``align_corners=False``).

    Args:
        chroma: f32 [n, 24].
        ratio: new duration / old one.

    Returns:
        f32 [int(n * ratio), 24].

    Raises:
        RequestError: no row would be left, or the ratio is no positive number.
    """
    count = int(chroma.shape[0] * ratio) if np.isfinite(ratio) and ratio > 0 else 0
    if count < 1:
        raise RequestError(f"{chroma.shape[0]} frames cannot be stretched by the ratio {ratio!r}.")
    if count == chroma.shape[0]:
        return chroma
    half, scale = np.float32(0.5), np.float32(chroma.shape[0]) / np.float32(count)
    centres = (np.arange(count, dtype=np.float32) + half) * scale - half
    centres = np.clip(centres, 0, chroma.shape[0] - 1)
    left = centres.astype(np.intp)
    right = np.minimum(left + 1, chroma.shape[0] - 1)
    weight = (centres - left.astype(np.float32))[:, np.newaxis]
    result: F32 = chroma[left] * (1 - weight) + chroma[right] * weight
    return result.astype(np.float32, copy=False)


def _tuning(librosa: Any, power: F32) -> float:
    """Deviation from A440 in classes, by the louder half of the spectral peaks; 0 without any."""
    pitches, magnitudes = librosa.piptrack(S=power, sr=SAMPLE_RATE, n_fft=N_FFT)
    found = pitches > 0
    if not found.any():
        return 0.0
    loud = found & (magnitudes >= np.median(magnitudes[found]))
    tuning = librosa.pitch_tuning(
        pitches[loud], resolution=_TUNING_RESOLUTION, bins_per_octave=N_CHROMA
    )
    return float(tuning)
