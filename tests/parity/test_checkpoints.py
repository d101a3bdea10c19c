"""Random checkpoints in both layouts: encoder, logits and greedy ids equal transformers'."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from checkpoints import F32, Sizes
from parity.oracle import (
    NEW_TOKENS,
    Oracle,
    Ours,
    random_oracle,
    relative_error,
    rewrite_original,
    save_hf,
)
from sounds import babble
from stapes.audio import log_mel

pytestmark = pytest.mark.parity

# Every checkpoint has another shape: widths, heads, groups of heads, layers, channels, windows.
CHECKPOINTS = [
    Sizes(),
    Sizes(tied=False),
    Sizes(num_attention_heads=4, num_key_value_heads=4, head_dim=16),
    Sizes(num_attention_heads=8, num_key_value_heads=1, head_dim=16, tied=False),
    Sizes(num_attention_heads=6, num_key_value_heads=3, hidden_size=48),
    Sizes(num_attention_heads=3, num_key_value_heads=1, hidden_size=72, tied=False),
    Sizes(num_attention_heads=2, num_key_value_heads=1, head_dim=128),
    Sizes(head_dim=64, hidden_size=96, intermediate_size=200, tied=False),
    Sizes(head_dim=10, hidden_size=36, intermediate_size=77),
    Sizes(head_dim=6, hidden_size=40, tied=False),
    Sizes(num_hidden_layers=1, encoder_layers=1),
    Sizes(num_hidden_layers=5, encoder_layers=4, tied=False),
    Sizes(downsample_hidden_size=1, d_model=32),
    Sizes(downsample_hidden_size=17, d_model=80, encoder_attention_heads=5, tied=False),
    Sizes(downsample_hidden_size=32, d_model=128, encoder_attention_heads=1),
    Sizes(d_model=36, encoder_attention_heads=6, encoder_ffn_dim=50, tied=False),
    Sizes(d_model=192, encoder_attention_heads=3, hidden_size=33),
    Sizes(n_window_infer=100, rope_theta=1e4, tied=False),
    Sizes(n_window_infer=400, rope_theta=5e6, vocab_size=600),
    Sizes(n_window_infer=1600, vocab_size=1001, tied=False),
    Sizes(hidden_size=160, intermediate_size=333, num_key_value_heads=1, vocab_size=515),
    Sizes(hidden_size=128, num_attention_heads=16, num_key_value_heads=8, tied=False),
    Sizes(num_mel_bins=80),
    Sizes(num_mel_bins=36, downsample_hidden_size=12, tied=False),
]

# Below half a second and a second, around a second, above one window and above two.
SAMPLES = [800, 3000, 7_999, 8_001, 12_000, 15_840, 15_999, 16_000, 16_001, 16_159, 16_160]
SAMPLES += [17_120, 21_920, 31_999, 32_000, 53_920, 80_080, 127_999, 128_160, 144_005, 256_160]
SAMPLES += [272_800, 24_160, 48_077]

FRAMES = [1, 8, 37, 50, 99, 100, 101, 107, 108, 137, 199, 200, 337, 400, 508, 799, 800, 801, 832]
FRAMES += [1600, 1601, 1733, 2, 9]


@dataclass
class Case:
    """A checkpoint of transformers, loaded from both layouts, and the lengths tried on it."""

    number: int
    oracle: Oracle
    hf: Ours
    original: Ours

    @property
    def bins(self) -> int:
        return CHECKPOINTS[self.number].num_mel_bins

    def sounds(self) -> list[F32]:
        """Two recordings with tails that other checkpoints do not have, and one of 2 s."""
        lengths = [SAMPLES[self.number], SAMPLES[(self.number * 7 + 5) % len(SAMPLES)], 32_160]
        return [babble(n, seed=10 * self.number + i) for i, n in enumerate(lengths)]

    def mels(self) -> list[F32]:
        """Random mel frames of four lengths."""
        rng = np.random.default_rng(self.number)
        lengths = [FRAMES[(self.number + k) % len(FRAMES)] for k in (0, 5, 11, 16)]
        return [rng.uniform(-1, 1, (n, self.bins)).astype(np.float32) for n in lengths]


@pytest.fixture(scope="module", params=range(len(CHECKPOINTS)))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    oracle = random_oracle(CHECKPOINTS[request.param], seed=request.param)
    hf = save_hf(oracle, folder / "hf")
    original = rewrite_original(hf, folder / "original")
    return Case(request.param, oracle, Ours(hf), Ours(original))


def test_encoder_output_equals_transformers(case: Case):
    for mel in case.mels():
        expected = case.oracle.encode(mel)
        assert relative_error(case.hf.encode(mel), expected) < 1e-4, mel.shape


def test_logits_and_greedy_ids_equal_transformers(case: Case):
    answers = []
    for sound in case.sounds():
        mel = log_mel(sound, case.bins)
        prompt = case.hf.prompt(case.hf.encode(mel))
        expected = case.oracle.logits(prompt, mel)
        assert expected.std() > 0.3  # or the tolerance would say nothing
        assert np.abs(case.hf.logits(prompt) - expected).max() < 1e-3
        answers.append(case.hf.greedy(prompt))
        assert answers[-1] == case.oracle.greedy(prompt, mel)
    assert_ids_prove_something(answers)


def assert_ids_prove_something(answers: list[list[int]]) -> None:
    """Ids change along each answer and from recording to recording."""
    for number, ids in enumerate(answers):
        assert len(ids) == NEW_TOKENS
        assert len(set(ids)) > 5
        for other in answers[:number]:
            assert sum(a == b for a, b in zip(ids, other, strict=True)) < NEW_TOKENS // 2


def test_both_layouts_give_the_same_bits(case: Case):
    mel = log_mel(case.sounds()[-1], case.bins)
    embeddings = case.hf.encode(mel)
    assert np.array_equal(case.original.encode(mel), embeddings)
    prompt, twin = case.hf.prompt(embeddings), case.original.prompt(embeddings)
    assert twin.token_ids == prompt.token_ids
    assert np.array_equal(case.original.logits(twin), case.hf.logits(prompt))
    assert case.original.greedy(twin) == case.hf.greedy(prompt)
