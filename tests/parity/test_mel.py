"""Mel features equal those of transformers' Qwen3-ASR feature extractor."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers.models.qwen3_asr")

from transformers.models.qwen3_asr.feature_extraction_qwen3_asr import Qwen3ASRFeatureExtractor

from stapes.audio import log_mel

pytestmark = pytest.mark.parity

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def reference():
    extractor = Qwen3ASRFeatureExtractor()

    def features(samples):
        out = extractor(
            samples,
            sampling_rate=16_000,
            padding="longest",
            return_attention_mask=True,
            return_tensors="np",
        )
        frames = int(out["attention_mask"][0].sum())
        return out["input_features"][0].T[:frames]

    return features


def speech_like(n, seed=0):
    """Harmonics that come and go over noise: a wide range of levels in time and frequency."""
    rng = np.random.default_rng(seed)
    t = np.arange(n) / 16_000
    voice = sum(np.sin(2 * np.pi * 140 * k * t + k) / k for k in range(1, 30))
    loudness = np.maximum(0.0, np.sin(2 * np.pi * 1.7 * t)) ** 2
    return (0.2 * loudness * voice + rng.normal(0, 1e-3, n)).astype(np.float32)


LENGTHS = [1, 160, 800, 7999, 8000, 8001, 8159, 8160, 8161, 15_999, 16_000, 16_001, 16_080]
LENGTHS += [32 * 160 * 5 - 1, 32 * 160 * 5, 32 * 160 * 5 + 1, 47_837, 100_000, 128_159, 300_003]


@pytest.mark.parametrize("n", LENGTHS)
def test_every_length_and_tail(reference, n):
    samples = speech_like(n)
    expected = reference(samples)
    features = log_mel(samples)
    assert features.shape == expected.shape
    assert np.abs(features - expected).max() < TOLERANCE


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(16_000, np.float32),
        np.eye(1, 16_000, 5000, dtype=np.float32)[0],
        np.ones(16_000, np.float32),
        np.float32(1e-5) * speech_like(16_000),
        np.concatenate([speech_like(20_001), np.zeros(20_001, np.float32)]),
        np.random.default_rng(0).uniform(-1, 1, 33_333).astype(np.float32),
    ],
    ids=["silence", "click", "constant", "faint", "speech-then-silence", "loud-noise"],
)
def test_every_kind_of_signal(reference, samples):
    assert np.abs(log_mel(samples) - reference(samples)).max() < TOLERANCE
