"""The acoustic stages' mel: frames, what a frame depends on, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from models.vevo2.acoustic_checkpoint import PREPROCESS
from stapes.errors import AudioError, ConfigError, RequestError
from stapes.models.vevo2.acoustic.config import mel_spec
from stapes.models.vevo2.acoustic.mel import mel_frames, normalised_mel

SPEC = mel_spec({"preprocess": PREPROCESS})


def noise(samples: int, seed: int = 0) -> np.ndarray:
    return (0.1 * np.random.default_rng(seed).normal(size=samples)).astype(np.float32)


@pytest.mark.parametrize("samples", [721, 959, 960, 24_000, 24_479])
def test_a_frame_is_480_samples(samples: int):
    mel = normalised_mel(noise(samples), SPEC)
    assert mel.shape == (samples // 480, 128)
    assert mel.shape[0] == mel_frames(samples, SPEC)
    assert mel.dtype == np.float32


def test_a_frame_depends_on_the_1920_samples_around_it():
    samples = noise(24_000)
    changed = samples.copy()
    changed[12_000] += 1
    differs = (normalised_mel(samples, SPEC) != normalised_mel(changed, SPEC)).any(axis=1)
    # Frame f is made of samples 480 f - 720 .. 480 f + 1199.
    assert np.flatnonzero(differs).tolist() == [23, 24, 25, 26]


def test_a_tone_is_in_its_band():
    tone = np.sin(2 * np.pi * 3000 * np.arange(24_000) / 24_000).astype(np.float32)
    low = np.sin(2 * np.pi * 300 * np.arange(24_000) / 24_000).astype(np.float32)
    bands = [int(normalised_mel(x, SPEC)[25].argmax()) for x in (low, tone)]
    assert 0 < bands[0] < bands[1] < 127


def test_mean_and_variance_are_taken_out():
    samples = noise(4800)
    plain = normalised_mel(samples, replace(SPEC, mel_mean=0.0, mel_var=1.0))
    np.testing.assert_allclose(normalised_mel(samples, SPEC), (plain + 4.92) / 8.14**0.5, rtol=1e-5)


@pytest.mark.parametrize("samples", [0, 1, 720])
def test_too_few_samples_are_an_error_with_the_numbers(samples: int):
    with pytest.raises(AudioError, match=f"{samples} samples at 24000 Hz; a mel needs 721"):
        normalised_mel(noise(samples), SPEC)


def test_samples_that_are_no_recording_are_refused():
    with pytest.raises(RequestError, match="shape"):
        normalised_mel(np.zeros((2, 4800), np.float32), SPEC)
    with pytest.raises(AudioError, match="not finite"):
        normalised_mel(np.full(4800, np.nan, np.float32), SPEC)


@pytest.mark.parametrize(
    "change",
    [{"fmin": 20}, {"fmax": 8000}, {"win_size": 1024}, {"hop_size": 500}, {"mel_var": 0}],
    ids=str,
)
def test_other_mels_are_refused(change: dict[str, Any]):
    with pytest.raises(ConfigError, match=next(iter(change))):
        mel_spec({"preprocess": PREPROCESS | change})
