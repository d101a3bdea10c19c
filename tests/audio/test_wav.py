"""WAV of every flavour, whole and broken."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from audio import sounds
from audio.sounds import ALAW, FLOAT, MULAW, PCM, chunk, riff, wav
from stapes.audio import read_audio
from stapes.errors import AudioError

X = sounds.tone()
SHORT = sounds.s16(X[:1600])


def _log_law_codes(tag):
    """Codes of A-law or mu-law with the values that G.711 gives them, by another road: a table."""
    codes = np.arange(256, dtype=np.uint8)
    if tag == MULAW:
        c = ~codes
        magnitude = ((((c & 15).astype(int) << 3) + 132) << ((c >> 4) & 7).astype(int)) - 132
        return codes, np.where(c & 128, -magnitude, magnitude) / 32768
    c = codes ^ 0x55
    exponent, mantissa = ((c >> 4) & 7).astype(int), (c & 15).astype(int)
    linear = (mantissa << 4) + 8
    segments = ((mantissa << 4) + 264) << np.maximum(exponent - 1, 0)
    magnitude = np.where(exponent == 0, linear, segments)
    return codes, np.where(c & 128, magnitude, -magnitude) / 32768


FLAVOURS = {
    "u8": (sounds.u8(X), PCM, 8, 2 / 256),
    "s16": (sounds.s16(X), PCM, 16, 2 / 2**16),
    "s24": (sounds.s24(X), PCM, 24, 2 / 2**24),
    "s32": (sounds.s32(X), PCM, 32, 2e-7),
    "f32": (X.astype("<f4").tobytes(), FLOAT, 32, 1e-7),
    "f64": (X.astype("<f8").tobytes(), FLOAT, 64, 1e-7),
}


@pytest.mark.parametrize("extensible", [False, True], ids=["plain", "extensible"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_linear_samples_agree_within_a_step(flavour, extensible):
    data, tag, bits, step = FLAVOURS[flavour]
    make = sounds.extensible_format if extensible else sounds.plain_format
    audio = read_audio(riff(chunk(b"fmt ", make(tag, bits)), chunk(b"data", data)))
    assert audio.samples.shape == (16_000,)
    assert audio.samples.dtype == np.float32
    assert np.abs(audio.samples - X).max() <= step
    assert audio.duration_s == 1.0
    assert audio.warnings == ()


@pytest.mark.parametrize("extensible", [False, True], ids=["plain", "extensible"])
@pytest.mark.parametrize("tag", [ALAW, MULAW])
def test_logarithmic_samples(tag, extensible):
    codes, values = _log_law_codes(tag)
    make = sounds.extensible_format if extensible else sounds.plain_format
    audio = read_audio(riff(chunk(b"fmt ", make(tag, 8)), chunk(b"data", codes.tobytes())))
    np.testing.assert_allclose(audio.samples, values, atol=1e-6)


@pytest.mark.parametrize(
    ("data", "bits", "valid"),
    [
        (sounds.s24(X), 24, 20),
        (sounds.s32(X), 32, 24),
        (sounds.s32(X), 32, 20),
        (sounds.s16(X), 16, 12),
        (sounds.s16(X), 16, 8),
        (sounds.s16(X), 16, 0),
    ],
)
def test_valid_bits_do_not_set_the_size_of_a_sample(data, bits, valid):
    fmt = sounds.extensible_format(PCM, bits, valid)
    audio = read_audio(riff(chunk(b"fmt ", fmt), chunk(b"data", data)))
    assert audio.samples.shape == (16_000,)
    assert np.abs(audio.samples - X).max() < 1e-4


@pytest.mark.parametrize("size", [16, 18, 20, 24])
def test_a_cut_extensible_format_is_taken_as_integers_and_says_so(size):
    fmt = sounds.extensible_format(PCM, 16)[:size]
    audio = read_audio(riff(chunk(b"fmt ", fmt), chunk(b"data", sounds.s16(X))))
    assert np.abs(audio.samples - X).max() < 1e-4
    assert audio.warnings == (
        f"The WAV format is cut to {size} bytes; 16-bit integers are assumed.",
    )


def test_a_cut_extensible_format_of_32_bits_could_be_either():
    fmt = sounds.extensible_format(PCM, 32)[:20]
    with pytest.raises(AudioError, match=r"cut to 20 bytes.*integers or floats"):
        read_audio(riff(chunk(b"fmt ", fmt), chunk(b"data", sounds.s32(X))))


FMT = chunk(b"fmt ", sounds.plain_format(PCM, 16))
DATA = chunk(b"data", SHORT)


@pytest.mark.parametrize(
    "file",
    [
        riff(chunk(b"JUNK", bytes(28)), FMT, DATA),
        riff(FMT, chunk(b"LIST", b"INFOISFT\4\0\0\0abc\0"), DATA),
        riff(FMT, chunk(b"LIST", b"INFO\xff\xfea"), DATA),
        riff(FMT, struct.pack("<4sI", b"LIST", 7) + b"INFO\xff\xfea", DATA),
        riff(chunk(b"LIST", b"INFOxyz"), FMT, DATA),
        riff(FMT, DATA, chunk(b"iXML", b"<a>\xff</a>")),
        riff(chunk(b"fmt ", sounds.plain_format(PCM, 16) + b"\0"), DATA),
        riff(FMT, DATA, size=0),
        riff(FMT, DATA, size=0xFFFFFFFF),
        riff(FMT, DATA) + b"trailing rubbish",
    ],
    ids=[
        "junk-first",
        "list-between",
        "odd-list",
        "odd-list-without-pad",
        "odd-list-before-format",
        "ixml-behind",
        "odd-format",
        "form-size-0",
        "form-size-unknown",
        "rubbish-behind",
    ],
)
def test_other_chunks_are_walked_over(file):
    audio = read_audio(file)
    assert audio.samples.shape == (1600,)
    assert np.abs(audio.samples - X[:1600]).max() < 1e-4
    assert audio.warnings == ()


@pytest.mark.parametrize("form", [b"RF64", b"BW64"])
def test_64_bit_sizes(form):
    ds64 = chunk(b"ds64", struct.pack("<QQQI", 0, len(SHORT), 1600, 0))
    file = riff(ds64, FMT, chunk(b"data", SHORT, 0xFFFFFFFF), form=form, size=0xFFFFFFFF)
    audio = read_audio(file)
    assert audio.samples.shape == (1600,)
    assert audio.warnings == ()


def test_64_bit_sizes_of_a_cut_file():
    ds64 = chunk(b"ds64", struct.pack("<QQQI", 0, 16 * len(SHORT), 0, 0))
    audio = read_audio(riff(ds64, FMT, chunk(b"data", SHORT, 0xFFFFFFFF), form=b"RF64"))
    assert audio.samples.shape == (1600,)
    assert "promises 1.60 s but only 0.10 s" in audio.warnings[0]


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF - 36, 0x80000000])
def test_a_streamed_file_has_no_size_and_is_not_called_cut(size):
    audio = read_audio(wav(SHORT, size=size))
    assert audio.samples.shape == (1600,)
    assert audio.warnings == ()


def test_two_data_chunks_are_joined_and_said():
    second = sounds.s16(sounds.tone(0.05, hz=1000))
    first = chunk(b"data", SHORT + b"\x7f")  # half a sample too much must not shift the second
    audio = read_audio(riff(FMT, first, chunk(b"LIST", b"INFOx"), chunk(b"data", second)))
    assert audio.samples.shape == (2400,)
    assert sounds.strongest_hz(audio.samples[1600:]) == pytest.approx(1000, abs=20)
    np.testing.assert_allclose(audio.samples[1600:], sounds.tone(0.05, hz=1000), atol=1e-4)
    assert audio.warnings == ("The file has 2 data chunks; they were joined in order.",)


def test_a_cut_file_keeps_what_is_there_and_says_both_durations():
    audio = read_audio(wav(sounds.s16(X))[: 44 + 16_000])
    assert audio.samples.shape == (8000,)
    assert audio.duration_s == 0.5
    assert audio.warnings == (
        "The file promises 1.00 s but only 0.50 s could be decoded; it is cut short or damaged.",
    )


def test_half_a_sample_at_the_end_is_dropped():
    assert read_audio(wav(SHORT + b"\x7f")).samples.shape == (1600,)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (wav(b""), "holds no audio: its data chunk has no samples"),
        (wav(b"\1"), "holds no audio: its data chunk has no samples"),
        (riff(FMT, chunk(b"data", b""), chunk(b"LIST", b"INFO" * 99)), "data chunk has no samples"),
        (riff(FMT), "holds no audio: it has no data chunk in its 36 bytes"),
        (riff(chunk(b"fmt ", bytes(6)), DATA), "damaged WAV header: its format has 6 bytes"),
        (riff(DATA), "is not a recording"),
        (riff(), "is not a recording"),
        (wav(SHORT, channels=0), "damaged WAV header: 0 channels at 16000 Hz"),
        (wav(SHORT, rate=0), "damaged WAV header: 1 channels at 0 Hz"),
        (wav(SHORT, rate=1), "its sample rate is 1 Hz; rates from 1000"),
        (wav(SHORT, rate=2_000_000), "its sample rate is 2000000 Hz"),
        (wav(SHORT, tag=0x1234), "(is not a recording|cannot be decoded)"),
    ],
)
def test_broken_files(file, message):
    with pytest.raises(AudioError, match=message) as caught:
        read_audio(file)
    assert str(caught.value).startswith("<bytes> ")
    assert str(caught.value).count(".") >= 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "count", "index"),
    [
        ({100: np.nan}, 1, 100),
        ({0: np.inf, 9999: -np.inf}, 2, 0),
        (dict.fromkeys(range(16_000), np.nan), 16_000, 0),
    ],
)
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_values_that_are_not_finite_are_counted_and_located(values, count, index, dtype):
    x = X.astype(dtype)
    x[list(values)] = list(values.values())
    with pytest.raises(
        AudioError, match=f"{count} of its samples.*first at sample {index} "
    ) as err:
        read_audio(wav(x.tobytes(), FLOAT, 8 * x.itemsize))
    assert f"({index / 16_000:.3f} s)" in str(err.value)


def test_a_double_beyond_float32_is_not_a_number_for_us():
    x = X.copy()
    x[5] = 1e300
    with pytest.raises(AudioError, match="first at sample 5 "):
        read_audio(wav(x.astype("<f8").tobytes(), FLOAT, 64))


def test_loud_floats_are_divided_by_their_peak():
    audio = read_audio(wav((8 * X).astype("<f4").tobytes(), FLOAT, 32))
    assert np.abs(audio.samples).max() == 1.0
    np.testing.assert_allclose(audio.samples, X / np.abs(X).max(), atol=1e-6)


def test_digital_silence_is_a_recording():
    audio = read_audio(wav(bytes(2 * 80_000)))
    assert audio.duration_s == 5.0
    assert not audio.samples.any()
    assert audio.warnings == ()


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 44_100, 48_000, 96_000])
@pytest.mark.parametrize("count", [480, 4801, 9999])
def test_duration_is_that_of_the_source(rate, count):
    audio = read_audio(wav(sounds.s16(sounds.tone(2.0, rate)[:count]), rate=rate))
    assert audio.duration_s == count / rate
    assert abs(len(audio.samples) - count * 16_000 / rate) <= 1


def test_one_sample_at_48_khz_is_less_than_one_at_16_khz():
    with pytest.raises(AudioError, match="too short: it has 1 samples in all"):
        read_audio(wav(b"\1\1", rate=48_000))
