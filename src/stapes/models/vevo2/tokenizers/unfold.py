"""Convolution over time as a matrix product: what each output reads, side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.tensors import widen

F32 = NDArray[np.float32]


def unfolded(rows: F32, kernel: int, stride: int = 1) -> F32:
    """Windows of `kernel` neighbouring rows, zeros beyond both ends.

    Args:
        rows: f32 [n, channels], n > 0.
        kernel: odd; the windows are centred (padding = kernel // 2).
        stride: rows from one window to the next.

    Returns:
        f32 [ceil(n / stride), kernel * channels], in the order (tap, channel).
    """
    padded = np.pad(rows, ((kernel // 2, kernel // 2), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=0)[::stride]
    return np.ascontiguousarray(windows.transpose(0, 2, 1)).reshape(windows.shape[0], -1)


def tap_channel(words: NDArray[Any]) -> NDArray[Any]:
    """A Conv1d weight [out, channels, taps] -> [out, (tap, channel)], which reads `unfolded`."""
    return words.transpose(0, 2, 1).reshape(words.shape[0], -1)


def one_tap(words: NDArray[Any]) -> NDArray[np.float32]:
    """A Conv1d weight [out, channels, 1] -> f32 [out, channels]."""
    return widen(words).reshape(words.shape[0], -1)
