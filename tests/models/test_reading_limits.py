"""Recordings that are small and endless, or slow to read."""

from __future__ import annotations

import io
import wave

import pytest

from stapes.errors import AudioError
from stapes.graph import NO_TRACE
from stapes.models.recording import ReadingLimits, Recording
from stapes.options import TranscribeOptions


def wav(seconds: int) -> io.BytesIO:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(1)
        written.setframerate(2000)
        written.writeframes(bytes([128]) * 2000 * seconds)
    file.seek(0)
    return file


def read(file: io.BytesIO, limits: ReadingLimits | None) -> float:
    check = limits and limits.check
    with Recording(file, None, TranscribeOptions(vad=False), NO_TRACE, check) as recording:
        for _ in recording.pieces():
            pass
        return recording.duration_s


def test_as_long_as_permitted_is_read():
    assert read(wav(60), ReadingLimits(60, 1000)) == 60
    assert read(wav(61), None) == 61


def test_longer_is_refused_before_it_is_decoded():
    with pytest.raises(AudioError, match=r"has 3600 s of sound or more; 60 s are permitted"):
        read(wav(3600), ReadingLimits(60, 1000))


def test_work_is_limited():
    with pytest.raises(AudioError, match="takes too long"):
        read(wav(60), ReadingLimits(60, 1e-9))
