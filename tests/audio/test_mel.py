"""Log-mel features against the definition; tests/parity compares them with transformers."""

from __future__ import annotations

import numpy as np
import pytest

from audio import sounds
from stapes.audio import log_mel
from stapes.audio.mel import mel_filters
from stapes.errors import RequestError


def slow_log_mel(x, n_mels):
    """Frame by frame, with a Fourier transform written out as a matrix."""
    n = np.arange(400)
    window = np.sin(np.pi * n / 400) ** 2
    fourier = np.exp(-2j * np.pi * np.outer(n, np.arange(201)) / 400)
    x = np.concatenate([x, np.zeros(max(0, 8000 - len(x)))])
    padded = np.pad(x.astype(np.float64), 200, mode="reflect")
    frames = [padded[160 * i : 160 * i + 400] for i in range(len(x) // 160)]
    power = np.abs((np.array(frames) * window) @ fourier) ** 2
    log = np.log10(np.maximum(power @ mel_filters(n_mels), 1e-10))
    return (np.maximum(log, log.max() - 8) + 4) / 4


def noise(n, seed=0):
    return np.random.default_rng(seed).normal(0, 0.1, n).astype(np.float32)


@pytest.mark.parametrize("n_mels", [128, 80])
@pytest.mark.parametrize("n", [1, 159, 5000, 8000, 8001, 31 * 320, 32 * 320 + 1, 24_159])
def test_blocks_and_edges_follow_the_definition(n, n_mels):
    features = log_mel(noise(n), n_mels)
    assert features.dtype == np.float32
    assert features.shape == (max(n, 8000) // 160, n_mels)
    np.testing.assert_allclose(features, slow_log_mel(noise(n), n_mels), atol=1e-6)


def test_filters_have_unit_area_and_peak_where_slaney_puts_them():
    filters = mel_filters(128)
    assert filters.shape == (201, 128)
    area = filters[:, 90:].sum(axis=0) * 40.0  # Hz a bin; narrower bands sample it too coarsely
    np.testing.assert_allclose(area, 1.0, atol=0.1)
    assert log_mel(sounds.tone(hz=1000.0).astype(np.float32)).mean(axis=0).argmax() == 42


def test_silence_is_flat_and_finite():
    np.testing.assert_array_equal(log_mel(np.zeros(16_000, np.float32)), np.float32(-1.5))


def test_the_range_is_eight_decades_below_the_maximum():
    x = np.concatenate([sounds.tone(level=0.9), np.zeros(16_000)]).astype(np.float32)
    features = log_mel(x)
    assert features.max() - features.min() == pytest.approx(2.0)


def test_the_same_frames_whatever_follows():
    """But for the floor and the last two frames, a prefix has the features of the whole."""
    whole, part = log_mel(noise(64_000)), log_mel(noise(64_000)[:32_000])
    np.testing.assert_allclose(whole[:198], part[:198], atol=1e-6)


def test_the_input_is_left_alone():
    x = noise(100)
    before = x.copy()
    log_mel(x)
    np.testing.assert_array_equal(x, before)
    assert log_mel(noise(20_000)[::2]).shape == (62, 128)


@pytest.mark.parametrize("shape", [(0,), (2, 100), ()])
def test_wrong_shapes(shape):
    with pytest.raises(RequestError, match="samples"):
        log_mel(np.zeros(shape, np.float32))
    with pytest.raises(RequestError, match="n_mels"):
        log_mel(noise(100), 0)
