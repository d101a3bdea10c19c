"""The mel that flow matching continues and the vocoder reads: log magnitudes, normalised.

It differs from the ASR models' (`stapes.audio.log_mel`) in every step but the filters: magnitudes
instead of powers, no padding beyond the first and last hop, natural logarithm, no dynamic range.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from stapes.audio.mel import mel_filters
from stapes.errors import AudioError, RequestError
from stapes.models.vevo2.acoustic.config import MelSpec

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_POWER_FLOOR = 1e-9  # added to the power under the root (Amphion, melspec.py)
_MEL_FLOOR = 1e-5  # smallest value under the logarithm (the same file)
_BLOCK_PRODUCTS = 1_000_000  # of a block's matrix product, below which OpenBLAS wakes no threads


def mel_frames(samples: int, spec: MelSpec) -> int:
    """Frames of so many samples."""
    return samples // spec.hop_size


def normalised_mel(samples: F32, spec: MelSpec) -> F32:
    """The mel of a recording, in f64 up to its last rounding.

    Args:
        samples: f32 [n], mono, at the spec's sample rate; longer than the padding of
            (n_fft - hop_size) / 2 samples, which are its reflection, and than a hop.
        spec: sizes, mean and variance.

    Returns:
        f32 [n // hop_size, num_mels].

    Raises:
        RequestError: samples have not one axis. AudioError: they are too few, or not finite.
    """
    if samples.ndim != 1:
        raise RequestError(f"A mel needs samples (n,), not the shape {samples.shape}.")
    padding = (spec.n_fft - spec.hop_size) // 2
    least = max(padding + 1, spec.hop_size)
    if samples.size < least:
        raise AudioError(
            f"The recording has {samples.size} samples at {spec.sample_rate} Hz; "
            f"a mel needs {least} or more."
        )
    if not np.isfinite(samples).all():
        raise AudioError("The recording holds values that are not finite.")
    padded = np.pad(samples, padding, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, spec.n_fft)[:: spec.hop_size]
    mel = np.empty((mel_frames(samples.size, spec), spec.num_mels), np.float32)
    step = max(1, _BLOCK_PRODUCTS // ((spec.n_fft // 2 + 1) * spec.num_mels))
    for first in range(0, len(mel), step):
        last = min(first + step, len(mel))
        mel[first:last] = _log_mel(windows[first:last].astype(np.float64), spec)
    return mel


def _log_mel(windows: F64, spec: MelSpec) -> F64:
    """Normalised log magnitudes of windows [frames, n_fft] -> [frames, num_mels]."""
    spectrum = np.fft.rfft(windows * hann(spec.n_fft), axis=1)
    magnitude = np.sqrt(spectrum.real**2 + spectrum.imag**2 + _POWER_FLOOR)
    mel = magnitude @ mel_filters(spec.num_mels, spec.n_fft, spec.sample_rate)
    result: F64 = np.log(np.maximum(mel, _MEL_FLOOR))
    result -= spec.mel_mean
    result /= np.sqrt(spec.mel_var)
    return result


@cache
def hann(n_fft: int) -> F64:
    """Periodic Hann window [n_fft]."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
