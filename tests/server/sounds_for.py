"""Recordings for the server's tests: real speech, repeated and cut into files."""

from __future__ import annotations

import io
import wave

import numpy as np

from server.told import EXAMPLES
from stapes.audio import read_audio


def samples(name: str) -> np.ndarray:
    return read_audio(EXAMPLES / name).samples


def wav(values: np.ndarray) -> io.BytesIO:
    """A file in memory, 16 kHz, 16 bit."""
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(16_000)
        written.writeframes((np.clip(values, -1, 1) * 32767).astype("<i2").tobytes())
    file.seek(0)
    return file


def long_recording(times: int) -> io.BytesIO:
    """Ten seconds of speech and a second and a half of silence, so many times."""
    part = np.concatenate([samples("digits-10.flac"), np.zeros(24_000, np.float32)])
    return wav(np.tile(part, times))
