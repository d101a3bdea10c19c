"""What a user may give as a recording -> samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stapes.audio import Audio, audio_from_array, read_audio
from stapes.errors import RequestError

if TYPE_CHECKING:
    from stapes.models.interface import AudioSource


def open_audio(source: AudioSource, sample_rate: int | None) -> Audio:
    """Read a path, bytes, a binary file, or an array of samples with its rate.

    Raises:
        RequestError: an array without a rate, or a rate without an array.
        AudioError: the recording cannot be used.
    """
    if isinstance(source, np.ndarray):
        if sample_rate is None:
            raise RequestError("An array of samples needs its sample_rate.")
        return audio_from_array(source, sample_rate)
    if sample_rate is not None:
        raise RequestError("sample_rate belongs to arrays; a file says its own.")
    return read_audio(source)
