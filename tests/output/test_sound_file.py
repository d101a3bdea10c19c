"""Sound files: what is written is what FFmpeg, and Python's own reader, find."""

from __future__ import annotations

import errno
import io
import os
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from stapes.audio import read_audio
from stapes.errors import CapacityError, RequestError
from stapes.output.sound_file import (
    as_int16,
    check_sound_file,
    encoded,
    wav_header,
    write_sound,
)

RATE = 24_000


def tone(seconds: float = 1.0) -> np.ndarray:
    times = np.arange(round(seconds * RATE)) / RATE
    return (0.3 * np.sin(2 * np.pi * 440 * times)).astype(np.float32)


def test_samples_of_16_bits_are_clipped_and_rounded():
    given = np.array([0, 1, -1, 1.5, -7, 0.5, 1 / 32767, -0.4 / 32767], np.float32)
    assert as_int16(given).tolist() == [0, 32767, -32767, 32767, -32767, 16384, 1, 0]


def test_wav_is_read_by_python(tmp_path):
    path = tmp_path / "o.WAV"
    write_sound(path, tone(), RATE)
    with wave.open(str(path)) as file:
        assert file.getparams()[:4] == (1, 2, RATE, RATE)
        data = np.frombuffer(file.readframes(RATE), "<i2")
    np.testing.assert_array_equal(data, as_int16(tone()))
    assert path.stat().st_size == 44 + 2 * RATE


def test_the_header_of_a_stream_and_of_too_much():
    header = wav_header(None, RATE)
    assert len(header) == 44
    assert struct.unpack("<I", header[4:8])[0] == 2**32 - 1
    with wave.open(io.BytesIO(wav_header(4, RATE) + b"\0\0\1\0")) as file:
        assert file.readframes(2) == b"\0\0\1\0"
    with pytest.raises(RequestError, match=r"use \.flac"):
        wav_header(2**32, RATE)


@pytest.mark.parametrize("ending", ["wav", "flac", "aiff", "caf", "w64"])
def test_what_loses_nothing(ending, tmp_path):
    write_sound(tmp_path / f"o.{ending}", tone(), RATE)
    # Read at another rate, by which all of them are compared alike.
    read = read_audio(tmp_path / f"o.{ending}").samples
    write_sound(tmp_path / "o.wav", tone(), RATE)
    np.testing.assert_array_equal(read, read_audio(tmp_path / "o.wav").samples)


@pytest.mark.parametrize("ending", ["mp3", "ogg", "opus", "oga", "m4a", "mp4", "webm", "mkv"])
def test_what_loses_little(ending, tmp_path):
    write_sound(tmp_path / f"o.{ending}", tone(1.0), RATE)
    read = read_audio(tmp_path / f"o.{ending}")
    assert read.duration_s == pytest.approx(1.0, abs=0.05)
    middle = read.samples[4000:12000].astype(np.float64)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(middle.size)))
    assert np.argmax(spectrum) * 16_000 / middle.size == pytest.approx(440, abs=4)
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.3 / np.sqrt(2), rel=0.1)


def test_very_short_sound(tmp_path):
    for ending in ("wav", "flac", "mp3", "ogg"):
        assert len(encoded(tmp_path / f"o.{ending}", tone(0.001), RATE)) > 44


@pytest.mark.parametrize("name", ["o", "o.txt", "o.png", "o.gif", "o.srt", "o.stapes"])
def test_endings_of_something_else(name, tmp_path):
    with pytest.raises(RequestError, match=r"no ending of a sound file.*\.wav, \.flac"):
        check_sound_file(tmp_path / name)
    with pytest.raises(RequestError, match="no ending of a sound file"):
        write_sound(tmp_path / name, tone(), RATE)
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "d.wav").mkdir()
    with pytest.raises(RequestError, match="is a folder"):
        check_sound_file(tmp_path / "d.wav")
    with pytest.raises(RequestError, match="folder that does not exist"):
        check_sound_file(tmp_path / "none" / "o.wav")


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "o.wav"
    path.write_bytes(b"old")

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CapacityError, match="No space left"):
        write_sound(path, tone(), RATE)
    assert [(p.name, p.read_bytes()) for p in Path(tmp_path).iterdir()] == [("o.wav", b"old")]
