"""A whole recording at once, as an :class:`Audio`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from stapes.audio.normalise import normalise
from stapes.audio.recording import Audio
from stapes.audio.source import AudioSource
from stapes.audio.stream import AudioStream, array_stream, file_stream


def read_audio(source: AudioSource) -> Audio:
    """Decode a recording to mono f32 at 16 kHz.

    Args:
        source: a path, the bytes of a file, or a binary stream (read from where it stands, not
            closed; one that cannot seek, such as a pipe, is read to its end first).

    Returns:
        The recording. What could not be decoded, or looks wrong, is said in its warnings.

    Raises:
        AudioError: nothing usable: missing, unreadable, empty, no audio, not finite.
        RequestError: ``source`` is of a wrong type.
    """
    with file_stream(source) as stream:
        return _whole(stream)


def audio_from_array(array: ArrayLike, sample_rate: int) -> Audio:
    """Make a recording of samples at ``sample_rate`` Hz.

    Args:
        array: (n,), (n, channels) or (channels, n); the channels are the shorter axis, at most 8.
            float32 and float64 are taken as they are; uint8, int16 and int32 are scaled to [-1, 1).
        sample_rate: Hz.

    Raises:
        RequestError: a shape, dtype or rate that cannot be read.
        AudioError: no samples, or samples that are NaN or infinite.
    """
    return _whole(array_stream(array, sample_rate))


def _whole(stream: AudioStream) -> Audio:
    samples = np.concatenate(list(stream))
    return Audio(normalise(samples, stream.name), stream.duration_s, stream.warnings)
