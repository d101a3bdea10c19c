"""Recordings: decoding, mixing, resampling, log-mel features and cutting at quiet points.

Everything here is plain NumPy around two libraries: PyAV decodes, soxr resamples. Nothing prints,
logs or reads the environment; what the caller should know travels in ``Audio.warnings``.
"""

from stapes.audio.mel import log_mel
from stapes.audio.read import audio_from_array, read_audio
from stapes.audio.recording import SAMPLE_RATE, Audio
from stapes.audio.segment import Span, split_at_quiet

__all__ = [
    "SAMPLE_RATE",
    "Audio",
    "Span",
    "audio_from_array",
    "log_mel",
    "read_audio",
    "split_at_quiet",
]
