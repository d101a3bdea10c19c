"""Log-mel features, as Whisper computes them and Qwen3-ASR reads them.

Parity reference: ``Qwen3ASRFeatureExtractor`` of transformers. It works in f32; here everything up
to the logarithm is f64, which costs a few milliseconds per 30 s and leaves only its rounding as a
difference.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from stapes.audio.recording import SAMPLE_RATE
from stapes.errors import RequestError

N_FFT = 400
HOP = 160
"""Samples: windows of 25 ms, every 10 ms (Whisper)."""

MIN_SAMPLES = 8_000
"""Shorter recordings are padded with zeros to 0.5 s (qwen-asr 0.0.6, ``utils.py``)."""

MEL_FLOOR = 1e-10
DYNAMIC_RANGE = 8.0
"""Powers are floored at 1e-10, then at 8 decades below the recording's maximum (Whisper)."""

BLOCK_FRAMES = 32
"""The work of a block stays in cache, and its matrix product below the size (40 frames) from
which OpenBLAS wakes its threads: on a busy machine waiting for them cost five times the work.
Blocks lie at multiples of 32 frames and a product always has 32 rows, so that a frame has the same
bits however many frames there are behind it."""


def log_mel(
    samples: NDArray[np.float32], n_mels: int = 128, floor_frames: int | None = None
) -> NDArray[np.float32]:
    """Features of one recording, time-major.

    Args:
        samples: f32 [n], n > 0, mono, 16 kHz.
        n_mels: number of mel bands from 0 to 8000 Hz.
        floor_frames: None floors everything relative to the maximum of the recording, as Whisper
            does. Else each window of so many frames is floored relative to the maximum up to its
            own end, so that what comes behind a window changes nothing in it. The two agree on
            recordings of one window.

    Returns:
        f32 [max(n, 8000) // 160, n_mels].

    Raises:
        RequestError: ``samples`` is empty or not of one axis, or ``n_mels`` or ``floor_frames`` is
            not positive.
    """
    if samples.ndim != 1 or samples.size == 0 or n_mels < 1:
        raise RequestError(
            f"Mel features need samples (n,), n > 0, and n_mels > 0,"
            f" not the shape {samples.shape} and {n_mels}."
        )
    if floor_frames is not None and floor_frames < 1:
        raise RequestError(f"floor_frames must be positive, not {floor_frames}.")
    if samples.size < MIN_SAMPLES:
        samples = np.pad(samples, (0, MIN_SAMPLES - samples.size))
    return compress(log_power(samples, n_mels), floor_frames)


def log_power(
    samples: NDArray[np.float32], n_mels: int = 128, first_frame: int = 0
) -> NDArray[np.float32]:
    """Log10 of the mel power of the frames from ``first_frame`` on, neither floored nor scaled.

    Args:
        samples: f32 [n] of the whole recording, n > 200.
        n_mels: number of mel bands.
        first_frame: a multiple of 32.

    Returns:
        f32 [n // 160 - first_frame, n_mels].
    """
    count = samples.size // HOP
    features = np.empty((max(count - first_frame, 0), n_mels), np.float32)
    for first in range(first_frame, count, BLOCK_FRAMES):
        last = min(first + BLOCK_FRAMES, count)
        windows = _windows(samples, first, last)
        features[first - first_frame : last - first_frame] = _log_power(windows, n_mels)
    return features


def _windows(samples: NDArray[np.float32], first: int, last: int) -> NDArray[np.float64]:
    """Windows of frames [first, last), each centred on sample frame * 160: f64 [frames, 400].

    Samples beyond the ends of the recording are its reflection.
    """
    begin, end = first * HOP - N_FFT // 2, (last - 1) * HOP + N_FFT // 2
    stretch = samples[max(begin, 0) : end].astype(np.float64)
    stretch = np.pad(stretch, (max(-begin, 0), max(end - samples.size, 0)), mode="reflect")
    return np.lib.stride_tricks.sliding_window_view(stretch, N_FFT)[::HOP]


def _log_power(windows: NDArray[np.float64], n_mels: int) -> NDArray[np.float64]:
    """Log10 of the mel power: f64 [frames, n_mels], of at most 32 frames."""
    spectrum = np.fft.rfft(windows * _hann(), axis=1)
    power = np.zeros((BLOCK_FRAMES, spectrum.shape[1]))
    power[: len(windows)] = spectrum.real**2 + spectrum.imag**2
    mel: NDArray[np.float64] = (power @ mel_filters(n_mels))[: len(windows)]
    return np.log10(np.maximum(mel, MEL_FLOOR))


def compress(
    log_power: NDArray[np.float32], floor_frames: int | None = None
) -> NDArray[np.float32]:
    """Floor relative to the maximum, see `log_mel`, and scale: f32 [frames, n_mels], in place."""
    step = len(log_power) if floor_frames is None else floor_frames
    top = -np.inf
    for first in range(0, len(log_power), max(step, 1)):
        window = log_power[first : first + step]
        top = max(top, window.max())
        np.maximum(window, np.float32(top) - np.float32(DYNAMIC_RANGE), out=window)
    log_power += 4.0
    log_power /= 4.0
    return log_power


@cache
def _hann() -> NDArray[np.float64]:
    """Periodic Hann window."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT)


@cache
def mel_filters(
    n_mels: int, n_fft: int = N_FFT, sample_rate: int = SAMPLE_RATE
) -> NDArray[np.float64]:
    """Triangles on Slaney's mel scale from 0 Hz to half the rate, each of unit area.

    Returns:
        f64 [n_fft // 2 + 1, n_mels].
    """
    edges = _mel_to_hz(np.linspace(0.0, _hz_to_mel(sample_rate / 2), n_mels + 2))
    bins = np.linspace(0.0, sample_rate / 2, n_fft // 2 + 1)[:, np.newaxis]
    rising = (bins - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - bins) / np.diff(edges)[1:]
    filters = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:-2]))
    filters.flags.writeable = False
    return filters


# Slaney's scale (Auditory Toolbox, 1998): linear below 1000 Hz at 3 mels per 200 Hz, above it
# logarithmic with 27 mels per factor 6.4.
_BREAK_HZ, _BREAK_MEL = 1000.0, 15.0
_MELS_PER_LOG = 27.0 / np.log(6.4)


def _hz_to_mel(hz: float) -> float:
    if hz < _BREAK_HZ:
        return 3.0 * hz / 200.0
    return float(_BREAK_MEL + np.log(hz / _BREAK_HZ) * _MELS_PER_LOG)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above = _BREAK_HZ * np.exp((mel - _BREAK_MEL) / _MELS_PER_LOG)
    return np.where(mel < _BREAK_MEL, 200.0 * mel / 3.0, above)
