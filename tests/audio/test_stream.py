"""Recordings read block by block: the samples of the whole, in memory that does not grow."""

from __future__ import annotations

import gc
import io
import tracemalloc

import numpy as np
import pytest

from audio import sounds
from audio.test_formats import HEALTHY, healthy
from stapes.audio import audio_from_array, read_audio
from stapes.audio.stream import BLOCK_SAMPLES, open_stream
from stapes.errors import AudioError, RequestError


def read(source, sample_rate=None):
    """All of a stream's samples, and the stream."""
    with open_stream(source, sample_rate) as stream:
        return np.concatenate(list(stream)), stream


class LongWav(io.RawIOBase):
    """A WAV file of silence with a click each second; its bytes exist only while they are read."""

    def __init__(self, seconds, rate=48_000, channels=2):
        self._second = np.zeros((rate, channels), "<i2")
        self._second[0] = 10_000
        self._second = self._second.tobytes()
        size = seconds * len(self._second)
        self._head = sounds.wav(b"", channels=channels, rate=rate, size=size)
        self._size = len(self._head) + size
        self._at = 0

    def seekable(self):
        return True

    def readable(self):
        return True

    def seek(self, offset, whence=0):
        self._at = (0, self._at, self._size)[whence] + offset
        return self._at

    def tell(self):
        return self._at

    def readinto(self, buffer):
        offset = self._at - len(self._head)
        if offset < 0:
            part = self._head[self._at :]
        else:
            part = self._second[offset % len(self._second) :][: self._size - self._at]
        part = part[: len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


@pytest.mark.parametrize("kind", HEALTHY)
def test_the_blocks_are_the_recording(kind):
    """Container by container, bit for bit; the tones are below 1, so nothing is normalised."""
    whole = read_audio(healthy(kind))
    samples, stream = read(healthy(kind))
    np.testing.assert_array_equal(samples, whole.samples)
    assert (stream.duration_s, stream.warnings) == (whole.duration_s, whole.warnings)
    assert stream.expected_s == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize("kind", ["mp3", "m4a", "flac", "opus", "mkv"])
@pytest.mark.parametrize("damage", [sounds.damaged, lambda data: data[: len(data) * 7 // 10]])
def test_damaged_recordings_are_streamed_as_they_are_read(kind, damage):
    data = damage(healthy(kind))
    if kind == "m4a" and len(data) < len(healthy(kind)):  # its index is gone
        with pytest.raises(AudioError, match="its index is missing"):
            read(data)
        return
    whole = read_audio(data)
    samples, stream = read(data)
    np.testing.assert_array_equal(samples, whole.samples)
    assert (stream.duration_s, stream.warnings) == (whole.duration_s, whole.warnings)


def test_a_chain_of_ogg_streams():
    first = sounds.encode("ogg", "flac", sounds.tone(1.3, 48_000), 48_000)
    second = sounds.encode("ogg", "flac", sounds.tone(1.5, 24_000, 880), 24_000, channels=2)
    broken = second.replace(b"\x7fFLAC", b"\x7fXXXX")
    samples, stream = read(first + second + broken + first)
    assert stream.duration_s == pytest.approx(4.1)
    assert stream.warnings == ("Part 3 of 4 of the file could not be decoded.",)
    assert sounds.strongest_hz(samples[22_000:44_000]) == pytest.approx(880, abs=3)


def test_blocks_are_a_second_long_and_only_the_last_is_shorter():
    with open_stream(sounds.wav(sounds.s16(sounds.tone(3.3, 44_100)), rate=44_100)) as stream:
        sizes = [block.size for block in stream]
    assert sizes[:-1] == [BLOCK_SAMPLES] * 3
    assert 0 < sizes[-1] < BLOCK_SAMPLES
    assert sum(sizes) == 52_800


def test_arrays_are_streamed_too():
    x = np.stack([sounds.tone(3.0, 48_000), sounds.tone(3.0, 48_000, 990)])
    samples, stream = read(x, 48_000)
    np.testing.assert_array_equal(samples, audio_from_array(x, 48_000).samples)
    assert stream.duration_s == 3.0
    assert stream.expected_s == 3.0
    assert read([0.0, 0.5, 1.0], 16_000)[0].tolist() == [0.0, 0.5, 1.0]


def test_loud_recordings_keep_their_level():
    samples, _ = read((8 * sounds.tone()).astype(np.float32), 16_000)
    assert np.abs(samples).max() == pytest.approx(4.0, rel=1e-3)


def test_cancelling_channels_are_told_at_the_end():
    x = np.stack([sounds.tone(3.0), sounds.tone(3.0)])
    x[1, 16_000:] *= -1
    with open_stream(x, 16_000) as stream:
        next(stream)
        assert not stream.mono_cancelled
    x[1] = -x[0]
    _, stream = read(x, 16_000)
    assert stream.mono_cancelled
    assert stream.warnings[0].startswith("The channels cancel each other")


def test_the_end_is_known_before_it_is_reached():
    with open_stream(healthy("flac")) as stream:
        next(stream)
        assert stream.expected_s == 2.0
        assert stream.duration_s < 2.0
    with open_stream(LongWav(7200)) as stream:
        assert stream.expected_s == 7200.0
        assert stream.duration_s < 5.0


def test_what_is_no_recording_fails_when_it_is_opened():
    with pytest.raises(AudioError, match="is not a recording"), open_stream(b"no" * 999):
        pytest.fail("it was opened")


@pytest.mark.parametrize("at", [100, 40_000])
def test_values_that_are_not_finite_are_counted_and_nothing_of_theirs_is_given(at):
    x = np.zeros(64_000, np.float32)
    x[[at, 63_000]] = np.nan
    given = []
    with (
        pytest.raises(AudioError, match=rf"2 of its samples .* the first at sample {at} "),
        open_stream(x, 16_000) as stream,
    ):
        given.extend(stream)
    assert sum(block.size for block in given) <= at


def test_samples_that_overflow_the_resampler():
    x = np.full(96_000, 3.4e38, np.float32)
    x[::2] *= -1
    with pytest.raises(AudioError, match="too large to be resampled"):
        read(x, 8000)


def test_nothing_comes_after_the_end_or_after_closing():
    with open_stream(healthy("flac")) as stream:
        next(stream)
    assert list(stream) == []
    _, stream = read(healthy("flac"))
    assert list(stream) == []


def test_a_stream_that_is_left_early_leaves_the_callers_file_open():
    file = io.BytesIO(healthy("mp3"))
    with open_stream(file) as stream:
        next(stream)
    assert not file.closed


@pytest.mark.parametrize("source", [None, 7, ["a.wav"]])
def test_sources_of_a_wrong_type(source):
    with (
        pytest.raises(RequestError, match="must be a path, bytes or a binary stream, not "),
        open_stream(source),
    ):
        pass


def test_a_rate_goes_with_an_array():
    with pytest.raises(RequestError, match="needs its sample_rate"), open_stream(np.zeros(9)):
        pass
    for source in ("a.wav", b"RIFF", io.BytesIO()):
        with (
            pytest.raises(RequestError, match="sample_rate belongs to arrays"),
            open_stream(source, 16_000),
        ):
            pass


def test_memory_does_not_grow_with_the_recording():
    """Ten minutes hold not much more than one; read whole they would be 38 MB."""

    def peak(seconds):
        with open_stream(LongWav(seconds)) as stream:
            gc.collect()
            tracemalloc.start()
            clicks = sum(int((block > 0.05).any()) for block in stream)
            highest = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert clicks == pytest.approx(seconds, abs=2)
        assert stream.duration_s == seconds
        return highest

    peak(5)
    assert peak(600) < peak(60) + 300_000 < 3_000_000
