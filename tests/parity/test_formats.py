"""What other formats and readings of a checkpoint must keep: ids in bf16, direction in q8."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from checkpoints import EOS_IDS, F32, Sizes, random_tensors, write_checkpoint
from parity.oracle import (
    NEW_TOKENS,
    Ours,
    prompt_logits,
    random_oracle,
    relative_error,
    rewrite_original,
    save_hf,
    saved_oracle,
    torch,
)
from sounds import babble
from stapes.audio import log_mel
from stapes.decoder import Decoder, GenerateOptions, Injection, Prompt, generate

pytestmark = pytest.mark.parity


def cosines(found: F32, expected: F32) -> F32:
    """The cosine of every row."""
    products = (found * expected).sum(axis=1)
    return products / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("layout", ["hf", "original"])
def test_bf16_weights_computed_in_f32_give_the_same_ids(tmp_path: Path, tied: bool, layout: str):
    narrow = random_oracle(Sizes(tied=tied), seed=40)
    narrow.model.bfloat16()
    folder = save_hf(narrow, tmp_path / "hf")
    oracle = saved_oracle(folder)  # the widened weights
    if layout == "original":
        folder = rewrite_original(folder, tmp_path / "original", "BF16")
    ours = Ours(folder, weights="bf16")
    assert ours.decoder.weights.embedding.format == "bf16"
    answers = []
    for seed in range(2):
        mel = log_mel(babble(40_000, seed))
        embeddings = ours.encode(mel)
        assert relative_error(embeddings, oracle.encode(mel)) < 1e-4
        prompt = ours.prompt(embeddings)
        assert np.abs(ours.logits(prompt) - oracle.logits(prompt, mel)).max() < 1e-3
        answers.append(ours.greedy(prompt))
        assert answers[-1] == oracle.greedy(prompt, mel)
    assert len(set(answers[0])) > 5
    assert answers[0] != answers[1]


@pytest.mark.parametrize("position", [0, 1, 20, NEW_TOKENS - 1])
def test_an_answer_ends_where_transformers_ends_it(tmp_path: Path, position: int):
    oracle = random_oracle(Sizes(tied=False), seed=41)
    ours = Ours(save_hf(oracle, tmp_path / "hf"))
    mel = log_mel(babble(30_000))
    prompt = ours.prompt(ours.encode(mel))
    free = ours.greedy(prompt)
    eos = free[position]
    oracle.model.generation_config.eos_token_id = [EOS_IDS[0], eos]
    spec = replace(ours.decoder.spec, eos_token_ids=frozenset({EOS_IDS[0], eos}))
    decoder = Decoder(spec, ours.decoder.weights, ours.decoder._make_executor, "f32")
    result = generate(decoder.new_session(), prompt, GenerateOptions(NEW_TOKENS))
    assert result.finish_reason == "stop"
    assert [*result.token_ids, eos] == oracle.greedy(prompt, mel)


def test_embeddings_see_no_further_than_their_window(tmp_path: Path):
    oracle = random_oracle(Sizes(encoder_layers=3), seed=42)
    ours = Ours(save_hf(oracle, tmp_path / "hf"))
    mel = np.random.default_rng(0).uniform(-1, 1, (2000, 128)).astype(np.float32)
    whole = ours.encode(mel)
    assert whole.shape[0] == 260
    assert relative_error(whole, oracle.encode(mel)) < 1e-4
    for start, end in ((0, 800), (800, 1600), (1600, 2000)):
        rows = slice(start // 100 * 13, end // 100 * 13)
        assert np.array_equal(whole[rows], ours.encode(mel[start:end]))
    assert not np.array_equal(whole[:91], ours.encode(mel[:700]))  # within it they see everything


# -- multimodal RoPE ------------------------------------------------------------------------------


def test_multimodal_rope_with_equal_axes_is_plain_rope(tmp_path: Path):
    """Qwen3-VL's text model rotates by three position axes; audio gives all three the same one."""
    from transformers import Qwen3VLTextConfig, Qwen3VLTextModel

    sizes = Sizes(tied=True, head_dim=32)
    oracle = random_oracle(sizes, seed=43)
    ours = Ours(rewrite_original(save_hf(oracle, tmp_path / "hf"), tmp_path / "original"))
    text = oracle.model.config.text_config.to_dict()
    text["rope_parameters"] = {
        "rope_theta": sizes.rope_theta,
        "rope_type": "default",
        "mrope_section": [6, 5, 5],
        "mrope_interleaved": True,
    }
    names = (*vars(sizes), "rms_norm_eps", "rope_parameters", "attention_bias", "hidden_act")
    config = Qwen3VLTextConfig(**{name: text[name] for name in names if name in text})
    model = Qwen3VLTextModel(config).eval()
    model.load_state_dict(oracle.model.model.language_model.state_dict())
    ids = np.random.default_rng(0).integers(0, 500, 300)
    axes = torch.arange(300).expand(3, 1, 300)
    with torch.no_grad():
        hidden = model(input_ids=torch.from_numpy(ids)[None], position_ids=axes).last_hidden_state
        expected = oracle.model.lm_head(hidden)[0].numpy()
    assert expected.std() > 0.3
    assert np.abs(ours.logits(Prompt(ids.tolist())) - expected).max() < 1e-3


# -- q8 at the real widths ------------------------------------------------------------------------

# Qwen3-ASR-0.6B, but for the number of layers and the vocabulary.
FULL_WIDTH = Sizes(
    d_model=896,
    encoder_layers=2,
    encoder_attention_heads=14,
    encoder_ffn_dim=3584,
    downsample_hidden_size=480,
    hidden_size=1024,
    num_hidden_layers=4,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=3072,
    vocab_size=2048,
)


@pytest.fixture(scope="module")
def full_width(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ours, Ours]:
    tensors = random_tensors(FULL_WIDTH)
    for name in tensors:
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            tensors[name] /= 3  # attention as soft as a trained model's, or it amplifies errors
        elif "language_model.layers" in name and tensors[name].ndim == 2:
            tensors[name] *= 0.02 / tensors[name].std()  # as transformers initialises this model
    folder = tmp_path_factory.mktemp("full")
    write_checkpoint(folder, FULL_WIDTH, dtype="BF16", tensors=tensors)
    return Ours(folder), Ours(folder, weights="q8", kv="f16")


def test_q8_keeps_the_direction_of_the_logits(full_width: tuple[Ours, Ours]):
    exact, quantised = full_width
    rng = np.random.default_rng(1)
    ids = rng.integers(0, FULL_WIDTH.vocab_size, 48).tolist()
    values = rng.normal(0, 1, (20, FULL_WIDTH.hidden_size)).astype(np.float32)
    prompt = Prompt(ids, Injection(values, range(10, 30)))
    expected = prompt_logits(exact.decoder, prompt)
    assert cosines(prompt_logits(quantised.decoder, prompt), expected).min() > 0.999


def test_q8_keeps_the_direction_of_embeddings_and_of_the_logits_behind_them(
    full_width: tuple[Ours, Ours],
):
    exact, quantised = full_width
    mel = log_mel(babble(24_000))
    embeddings = exact.encode(mel)
    assert cosines(quantised.encode(mel), embeddings).min() > 0.999
    prompts = [ours.prompt(ours.encode(mel)) for ours in full_width]
    logits = [ours.logits(prompt) for ours, prompt in zip(full_width, prompts, strict=True)]
    assert cosines(logits[1], logits[0]).min() > 0.999
