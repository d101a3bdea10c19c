"""Recordings that the caller already holds as an array."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stapes.audio.decode import Block
from stapes.audio.mix import MAX_RATE, MIN_RATE
from stapes.errors import AudioError, RequestError

MAX_CHANNELS = 8
ARRAY_NAME = "The array"
SAMPLE_TYPES = ("u1", "i2", "i4", "f4", "f8")
_BLOCK_SAMPLES = 2**16


def array_blocks(array: ArrayLike, sample_rate: int) -> tuple[Generator[Block], float]:
    """Views of the samples, and seconds in all; see `audio_from_array` for what they may be.

    Raises:
        RequestError: a shape, dtype or rate that cannot be read.
        AudioError: no samples.
    """
    rate = check_rate(sample_rate)
    channels = _channels_first(_checked_array(array))
    starts = range(0, channels.shape[1], _BLOCK_SAMPLES)
    blocks = ((channels[:, start : start + _BLOCK_SAMPLES], rate) for start in starts)
    return blocks, channels.shape[1] / rate


def check_rate(rate: object) -> int:
    """A sample rate in Hz. RequestError when it is none, or out of range."""
    whole = isinstance(rate, (int, np.integer)) and not isinstance(rate, bool)
    if not whole or not MIN_RATE <= int(rate) <= MAX_RATE:  # type: ignore[call-overload]
        raise RequestError(
            f"sample_rate must be a whole number from {MIN_RATE} to {MAX_RATE} Hz, not {rate!r}."
        )
    return int(rate)  # type: ignore[call-overload, no-any-return]


def _checked_array(array: ArrayLike) -> NDArray[Any]:
    try:
        samples = np.asarray(array)
    except (TypeError, ValueError) as error:
        raise RequestError(f"The samples do not form an array: {error}.") from error
    if samples.dtype.str[1:] not in SAMPLE_TYPES:
        raise RequestError(
            f"Samples must be float32, float64, int16, int32 or uint8, not {samples.dtype}."
        )
    if samples.ndim not in (1, 2):
        raise RequestError(f"Samples must have one or two axes, not the shape {samples.shape}.")
    if samples.size == 0:
        raise AudioError(f"{ARRAY_NAME} holds no audio: its shape is {samples.shape}.")
    return samples


def _channels_first(samples: NDArray[Any]) -> NDArray[Any]:
    """View as [channels, n]."""
    if samples.ndim == 1:
        return samples[np.newaxis]
    rows, columns = samples.shape
    if rows == columns != 1:
        raise RequestError(
            f"The shape {samples.shape} does not say which axis holds the channels;"
            " give one channel as (n,)."
        )
    if min(rows, columns) > MAX_CHANNELS:
        raise RequestError(
            f"The shape {samples.shape} has {min(rows, columns)} channels;"
            f" at most {MAX_CHANNELS} can be mixed."
        )
    return samples if rows < columns else samples.T
