"""Audio that comes through a pipe: raw, or WAV whose end nobody knows."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import numpy as np
import pytest

from sounds import babble
from stapes.audio.pipe import open_pipe
from stapes.errors import AudioError, RequestError

SOUND = babble(5_000)


def dribble(data: bytes, size: int) -> Callable[[int], bytes]:
    """A pipe that has at most so many bytes at a time."""
    file = io.BytesIO(data)
    return lambda count: file.read(min(count, size))


def wav(samples: np.ndarray, tag: int, rate: int, data_size: int, before: bytes = b"") -> bytes:
    """A file as a program writes it that cannot seek back."""
    channels, size = samples.shape[1], samples.dtype.itemsize
    form = struct.pack(
        "<HHIIHH", tag, channels, rate, rate * channels * size, channels * size, 8 * size
    )
    body = b"fmt " + struct.pack("<I", 16) + form + before
    head = b"RIFF\xff\xff\xff\xffWAVE" + body + b"data" + struct.pack("<I", data_size)
    return head + samples.tobytes()


def read(data: bytes, size: int = 1_000, rate: int = 16_000):
    pipe = open_pipe(dribble(data, size), rate, "standard input")
    return pipe.rate, np.concatenate(list(pipe.blocks))


@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_without_a_header_it_is_16_bit_integers(size: int):
    whole = (SOUND * 32_767).astype("<i2")
    rate, samples = read(whole.tobytes() + b"\x00", size, 8_000)
    assert rate == 8_000
    assert np.array_equal(samples[:, 0], whole)


@pytest.mark.parametrize("end", [0, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("size", [3, 999])
@pytest.mark.parametrize(
    ("dtype", "tag"), [("u1", 1), ("<i2", 1), ("<i4", 1), ("<f4", 3), ("<f8", 3)]
)
def test_wav_without_an_end(end: int, size: int, dtype: str, tag: int):
    scale = {"u1": 100, "<i2": 30_000, "<i4": 2**30}.get(dtype, 1)
    stereo = np.stack([SOUND, -SOUND], axis=1)
    whole = (stereo * scale + (128 if dtype == "u1" else 0)).astype(dtype)
    rate, samples = read(wav(whole, tag, 44_100, end), size)
    assert rate == 44_100
    assert samples.dtype == whole.dtype
    assert np.array_equal(samples, whole)


def test_24_bits():
    wide = (SOUND * 2**22).astype("<i4")
    packed = wide.view(np.uint8).reshape(-1, 4)[:, :3].copy().reshape(-1, 1)
    form = struct.pack("<HHIIHH", 1, 1, 48_000, 144_000, 3, 24)
    head = b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<I", 16) + form
    rate, samples = read(head + b"data\xff\xff\xff\xff" + packed.tobytes(), 1_001)
    assert rate == 48_000
    assert np.array_equal(samples[:, 0], wide * 256)


def test_what_stands_beside_the_samples_is_passed_over():
    whole = (SOUND * 32_767).astype("<i2")[:, np.newaxis]
    odd = b"LIST" + struct.pack("<I", 5) + b"hello\x00"
    data = wav(whole, 1, 16_000, whole.nbytes, odd) + b"LIST\x04\x00\x00\x00abcd"
    assert np.array_equal(read(data)[1], whole)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"fLaC" + bytes(100), "compressed file"),
        (b"\x00\x00\x00\x20ftypM4A " + bytes(100), "compressed file"),
        (b"RIFF\xff\xff\xff\xffWAVE", "damaged WAV header"),
        (b"RIFF\xff\xff\xff\xffWAVEdata\xff\xff\xff\xff" + bytes(9), "damaged WAV header"),
        (wav(np.zeros((9, 1), "u1"), 7, 8_000, 9), "encoding 7"),
        (wav(np.zeros((9, 9), "<i2"), 1, 8_000, 9), "at most 8 channels"),
    ],
)
def test_what_cannot_be_read_is_told(data: bytes, message: str):
    with pytest.raises(AudioError, match=message):
        read(data)


def test_a_rate_that_is_none_is_refused():
    with pytest.raises(RequestError, match="sample_rate"):
        read(bytes(100), rate=3)


def test_an_empty_pipe_is_no_audio_and_half_a_sample_no_block():
    with pytest.raises(AudioError, match=r"standard input holds no audio: it is empty"):
        open_pipe(dribble(b"", 1), 16_000, "standard input")
    assert list(open_pipe(dribble(b"x", 1), 16_000, "standard input").blocks) == []
