"""Sound that is written as it comes: what is put together is the same file."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest

from stapes.audio import read_audio
from stapes.errors import RequestError
from stapes.output.sound_file import as_int16
from stapes.output.sound_stream import STREAM_FORMATS, SoundStream

RATE = 24_000


def tone(seconds: float) -> np.ndarray:
    return (0.3 * np.sin(np.arange(int(seconds * RATE)) * 2 * np.pi * 440 / RATE)).astype("f4")


def parts(kind: str, samples: np.ndarray, cuts: list[int]) -> list[bytes]:
    stream = SoundStream(kind, RATE)
    found = [stream.add(block) for block in np.split(samples, cuts)]
    found.append(stream.finish())
    stream.close()
    return found


@pytest.mark.parametrize("kind", STREAM_FORMATS)
def test_any_cut_gives_the_same_sound(kind):
    samples = tone(1.5)
    whole = b"".join(parts(kind, samples, []))
    cut = b"".join(parts(kind, samples, [1, 9_000, 9_000, 30_001]))
    if kind in ("wav", "pcm"):
        assert whole == cut
        return
    one, other = read_audio(whole).samples, read_audio(cut).samples
    assert abs(one.size / 16_000 - 1.5) < 0.1
    size = min(one.size, other.size)
    assert abs(one.size - other.size) < 0.03 * 16_000  # a frame of the codec
    if kind == "flac":
        np.testing.assert_array_equal(one, other)
    assert np.corrcoef(one[:size], other[:size])[0, 1] > 0.99


@pytest.mark.parametrize("kind", STREAM_FORMATS)
def test_most_of_a_piece_comes_with_it(kind):
    first, second, end = parts(kind, np.concatenate([tone(3), tone(3)]), [3 * RATE])
    assert len(first) > 0.6 * len(second)
    assert len(end) < 0.4 * (len(first) + len(second))


def test_pcm_and_wav_are_the_samples():
    samples = np.array([0, 0.5, -1, 2], np.float32)
    expected = as_int16(samples).astype("<i2").tobytes()
    assert b"".join(parts("pcm", samples, [2])) == expected
    whole = b"".join(parts("wav", samples, [2]))
    assert whole[44:] == expected
    with wave.open(io.BytesIO(whole)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)


def test_a_stream_can_be_given_up():
    stream = SoundStream("opus", RATE)
    stream.add(tone(0.1))
    stream.close()
    stream.close()


def test_an_unknown_kind():
    with pytest.raises(RequestError, match=r"'ogv' is none of mp3, opus, aac, flac, wav, pcm\."):
        SoundStream("ogv", RATE)
