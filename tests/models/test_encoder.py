"""The audio encoder: how many rows, and what each of them depends on."""

from __future__ import annotations

import numpy as np
import pytest

from checkpoints import Sizes, write_checkpoint
from models.conftest import load
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.models.qwen3_asr.encoder import AudioEncoder, audio_tokens, sinusoids

TABLE = {1: 1, 8: 1, 9: 2, 40: 5, 99: 13, 100: 13, 101: 14, 108: 14, 109: 15, 200: 26}
TABLE |= {640: 83, 800: 104, 801: 105, 3000: 390, 6245: 812}


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Qwen3Asr:
    sizes = Sizes(encoder_layers=3, d_model=48, downsample_hidden_size=4)
    return load(write_checkpoint(tmp_path_factory.mktemp("deep"), sizes))


@pytest.fixture(scope="module")
def encoder(deep: Qwen3Asr) -> AudioEncoder:
    return deep.encoder


def random_mel(frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (frames, 128)).astype(np.float32)


@pytest.mark.parametrize(("frames", "tokens"), TABLE.items())
def test_rows_for_frames(encoder: AudioEncoder, frames: int, tokens: int):
    assert audio_tokens(frames) == tokens
    assert encoder.encode(random_mel(frames)).shape == (tokens, 64)


def test_every_length_of_tail_has_the_rows_of_three_halvings():
    for frames in range(1, 100):
        assert audio_tokens(frames) == -(-frames // 8)
        assert audio_tokens(700 + frames) == 91 + -(-frames // 8)


def test_windows_do_not_see_each_other(encoder: AudioEncoder):
    mel = random_mel(2000)
    whole = encoder.encode(mel)
    assert np.array_equal(whole[:104], encoder.encode(mel[:800]))
    assert np.array_equal(whole[104:208], encoder.encode(mel[800:1600]))
    assert np.array_equal(whole[208:], encoder.encode(mel[1600:]))


def test_within_a_window_every_row_sees_every_other(encoder: AudioEncoder):
    mel = random_mel(1600)
    changed = mel.copy()
    changed[799] += 1
    different = (encoder.encode(mel) != encoder.encode(changed)).any(axis=1)
    assert different[:104].all()
    assert not different[104:].any()


def test_a_window_of_the_configuration_counts(tmp_path_factory: pytest.TempPathFactory):
    sizes = Sizes(n_window_infer=200, d_model=32, downsample_hidden_size=2)
    encoder = load(write_checkpoint(tmp_path_factory.mktemp("short"), sizes)).encoder
    mel = random_mel(500)
    whole = encoder.encode(mel)
    assert np.array_equal(whole[:26], encoder.encode(mel[:200]))
    assert not np.array_equal(whole[:13], encoder.encode(mel[:100]))


@pytest.mark.parametrize("frames", [99, 300, 400, 401, 799, 1234])
def test_the_stem_takes_any_number_of_chunks_at_once(encoder: AudioEncoder, frames: int):
    """Chunks run four at a time; each depends on itself alone, its sinusoids starting at 0."""
    mel = random_mel(frames)
    chunks = [encoder.stem(mel[start : start + 100]) for start in range(0, frames, 100)]
    assert np.array_equal(encoder.stem(mel), np.concatenate(chunks))


@pytest.mark.parametrize("frames", [1, 37, 99, 101, 137, 337])
def test_the_tail_is_padded_with_zeros_before_the_convolutions(encoder: AudioEncoder, frames: int):
    mel = random_mel(frames)
    padded = np.zeros((-(-frames // 100) * 100, 128), np.float32)
    padded[:frames] = mel
    assert np.array_equal(encoder.stem(mel), encoder.stem(padded)[: audio_tokens(frames)])


def test_sinusoids_are_those_of_whisper():
    table = sinusoids(13, 8)
    assert table.shape == (13, 8)
    assert table.dtype == np.float32
    rates = 10_000 ** (-np.arange(4) / 3)
    angles = np.arange(13)[:, None] * rates
    assert np.allclose(table, np.concatenate([np.sin(angles), np.cos(angles)], axis=1), atol=1e-5)


def test_encoding_twice_gives_the_same_bits(encoder: AudioEncoder):
    first, other = random_mel(950, 1), random_mel(950, 2)
    expected = encoder.encode(first)
    encoder.encode(other)
    assert np.array_equal(encoder.encode(first), expected)
    assert not np.array_equal(encoder.encode(other), expected)


@pytest.mark.parametrize("frames", [1, 799, 800, 801, 2000, 2409])
def test_steps_are_the_whole_bit_for_bit(encoder: AudioEncoder, frames: int):
    mel, pauses = random_mel(frames), 0
    steps = encoder.encode_steps(mel)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            embeddings = done.value
            break
        pauses += 1
    assert np.array_equal(embeddings, encoder.encode(mel))
    assert pauses == -(-frames // 800) - 1
