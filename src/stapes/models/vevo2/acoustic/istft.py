"""The inverse short-time Fourier transform with padding "same": so many hops, so many frames."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


def inverse_stft(spectrum: NDArray[np.complex128], window: F64, hop: int) -> F64:
    """Windowed frames, overlapped, added, and divided by the sum of their squared windows.

    Args:
        spectrum: [frames, n_fft / 2 + 1].
        window: [n_fft], a multiple of hop.
        hop: samples from frame to frame.

    Returns:
        [frames * hop]: (n_fft - hop) / 2 samples are cut off either end. A sample depends on the
        frames within n_fft / 2 of it alone, and bit for bit on nothing else.
    """
    frames, n_fft = spectrum.shape[0], window.size
    pieces = np.fft.irfft(spectrum, n_fft, axis=1) * window
    weights = np.broadcast_to(window**2, (frames, n_fft))
    margin = (n_fft - hop) // 2
    inside = slice(margin, margin + frames * hop)
    return _overlapped(pieces, hop)[inside] / _overlapped(weights, hop)[inside]


def _overlapped(pieces: F64, hop: int) -> F64:
    """Sums of pieces [frames, n_fft] that begin a hop apart -> [(frames - 1) * hop + n_fft].

    Every sample is summed in the same order: from the last piece that covers it to the first.
    """
    frames, n_fft = pieces.shape
    total = np.zeros((frames - 1) * hop + n_fft)
    for start in range(0, n_fft, hop):
        hops = total[start : start + frames * hop].reshape(frames, hop)
        hops += pieces[:, start : start + hop]
    return total
