"""Arrays of every layout and dtype, and the mixing that files share with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio import sounds
from stapes.audio import audio_from_array, read_audio
from stapes.errors import AudioError, RequestError

X = sounds.tone(1.0, 48_000)


def test_the_layouts_of_one_recording_agree():
    stereo = np.stack([X, 0.5 * X]).astype(np.float32)
    wide, tall = audio_from_array(stereo, 48_000), audio_from_array(stereo.T, 48_000)
    np.testing.assert_array_equal(wide.samples, tall.samples)
    assert wide.samples.shape == (16_000,)
    assert wide.duration_s == 1.0
    np.testing.assert_allclose(wide.samples, audio_from_array(0.75 * X, 48_000).samples, atol=1e-6)


@given(
    channels=st.integers(1, 8),
    count=st.integers(9, 400),
    rate=st.sampled_from([8000, 16_000, 44_100, 48_000]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_layout_is_the_mean_over_channels(channels, count, rate, seed):
    x = np.random.default_rng(seed).uniform(-1, 1, (channels, count)).astype(np.float32)
    expected = audio_from_array(x.mean(axis=0, dtype=np.float64), rate)
    for layout in (x, x.T, np.asfortranarray(x), x.astype(">f4").T):
        audio = audio_from_array(layout, rate)
        np.testing.assert_allclose(audio.samples, expected.samples, atol=2e-6)
        assert audio.duration_s == count / rate


def test_files_and_arrays_go_the_same_way():
    stereo = np.stack([X, sounds.tone(1.0, 48_000, 1000)])
    data = np.round(stereo * 32767).astype("<i2")
    from_file = read_audio(sounds.wav(data.T.tobytes(), channels=2, rate=48_000))
    from_array = audio_from_array(data, 48_000)
    np.testing.assert_array_equal(from_file.samples, from_array.samples)


def test_long_arrays_go_in_blocks_without_seams():
    x = np.random.default_rng(0).uniform(-0.1, 0.1, 700_001)
    audio = audio_from_array(x, 44_100)
    assert abs(len(audio.samples) - 700_001 * 16_000 / 44_100) <= 1
    parts = audio_from_array(x[:200_000], 44_100).samples
    np.testing.assert_allclose(audio.samples[:70_000], parts[:70_000], atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "zero", "half"),
    [
        (np.uint8, 128, 192),
        (np.int16, 0, 2**14),
        (np.int32, 0, 2**30),
        ("f4", 0, 0.5),
        (">f8", 0, 0.5),
    ],
)
def test_integers_are_scaled_and_floats_are_not(dtype, zero, half):
    x = np.full(1000, zero, dtype)
    x[500] = half
    samples = audio_from_array(x, 16_000).samples
    assert samples[500] == 0.5
    assert not np.delete(samples, 500).any()


def test_full_scale():
    x = np.array([-(2**15), 2**15 - 1] * 100, np.int16)
    np.testing.assert_array_equal(audio_from_array(x, 16_000).samples, x / np.float32(2**15))


def test_speech_in_one_channel_only_is_heard_without_warning():
    x = np.zeros((16_000, 2), np.float32)
    x[:, 1] = sounds.tone()
    audio = audio_from_array(x, 16_000)
    np.testing.assert_allclose(audio.samples, sounds.tone() / 2, atol=1e-6)
    assert audio.warnings == ()


def test_one_speaking_channel_of_six():
    x = np.zeros((6, 16_000), np.float32)
    x[2] = sounds.tone()
    audio = audio_from_array(x, 16_000)
    np.testing.assert_allclose(audio.samples, sounds.tone() / 6, atol=1e-6)
    assert audio.warnings == ()


def test_equal_channels_keep_their_level():
    x = np.stack([sounds.tone()] * 2)
    np.testing.assert_allclose(audio_from_array(x, 16_000).samples, sounds.tone(), atol=1e-6)


def test_channels_that_cancel_are_reported():
    x = np.stack([sounds.tone(), -0.98 * sounds.tone()])
    audio = audio_from_array(x, 16_000)
    assert len(audio.warnings) == 1
    assert audio.warnings[0].startswith("The channels cancel each other: their mean keeps 0.01%")
    data = np.round(np.stack([sounds.tone(), -sounds.tone()]) * 32767).astype("<i2")
    from_file = read_audio(sounds.wav(data.T.tobytes(), channels=2))
    assert from_file.warnings[0].startswith("The channels cancel each other")


def test_silence_in_stereo_is_not_cancellation():
    assert audio_from_array(np.zeros((2, 1000), np.float32), 16_000).warnings == ()


def test_the_peak_is_taken_after_mixing_and_resampling():
    x = np.stack([4 * X, np.zeros_like(X)])
    samples = audio_from_array(x, 48_000).samples
    assert np.abs(samples).max() == pytest.approx(1.0)
    quiet = audio_from_array(0.001 * X, 48_000).samples
    assert np.abs(quiet).max() == pytest.approx(0.0005, rel=0.01)


def test_the_callers_array_is_neither_changed_nor_shared():
    x = (4 * sounds.tone()).astype(np.float32)
    before = x.copy()
    audio = audio_from_array(x, 16_000)
    np.testing.assert_array_equal(x, before)
    assert not np.shares_memory(audio.samples, x)
    assert not np.shares_memory(audio_from_array(audio.samples, 16_000).samples, audio.samples)


@pytest.mark.parametrize("shape", [(2, 2), (8, 8), (500, 500), (9, 1000), (1000, 9), (2, 3, 4), ()])
def test_shapes_that_say_too_little(shape):
    with pytest.raises(RequestError, match="shape"):
        audio_from_array(np.zeros(shape, np.float32), 16_000)


@pytest.mark.parametrize(("shape", "n"), [((1, 1), 1), ((1, 5), 5), ((5, 1), 5), ((3, 7), 7)])
def test_small_shapes_that_are_clear(shape, n):
    assert audio_from_array(np.zeros(shape, np.float32), 16_000).samples.shape == (n,)


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
def test_empty_arrays(shape):
    with pytest.raises(AudioError, match="holds no audio"):
        audio_from_array(np.zeros(shape, np.float32), 16_000)


@pytest.mark.parametrize(
    "dtype", [bool, np.int8, np.uint16, np.int64, np.float16, complex, object, str]
)
def test_dtypes_that_have_no_meaning_as_sound(dtype):
    with pytest.raises(RequestError, match="must be float32, float64, int16, int32 or uint8, not"):
        audio_from_array(np.zeros(100).astype(dtype), 16_000)


@pytest.mark.parametrize(
    "rate", [0, -1, 999, 10**7, 16_000.0, "16000", None, True, np.float32(16_000)]
)
def test_rates_that_cannot_be(rate):
    with pytest.raises(RequestError, match="sample_rate must be a whole number"):
        audio_from_array(np.zeros(100, np.float32), rate)


def test_lists_and_numpy_rates_are_fine():
    assert audio_from_array([0.0, 0.5, 1.0], np.int64(16_000)).samples.tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(RequestError, match="do not form an array"):
        audio_from_array([[0.0], [0.0, 1.0]], 16_000)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(bad):
    x = np.zeros((2, 1000), np.float32)
    x[1, 700] = bad
    with pytest.raises(AudioError, match=r"1 of its samples .* at sample 700 \(0\.044 s\)"):
        audio_from_array(x, 16_000)


def test_values_that_overflow_while_resampling():
    x = np.full(1000, np.finfo(np.float32).max, np.float32) * np.sign(sounds.tone()[:1000])
    with pytest.raises(AudioError, match="values too large to be resampled"):
        audio_from_array(x.astype(np.float32), 44_100)


def test_durations_below_a_frame_stay_true():
    audio = audio_from_array(np.zeros(160, np.float32), 16_000)
    assert audio.duration_s == 0.01
    assert audio.samples.shape == (160,)
