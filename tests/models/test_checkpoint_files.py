"""Weights that are not those the configuration promises are refused, with full lists."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from checkpoints import (
    Sizes,
    Tensors,
    bf16_rounded,
    hf_config,
    original_tensors,
    random_tensors,
    write_checkpoint,
    write_safetensors,
    write_shards,
)
from models.conftest import SMALL, load
from sounds import babble
from stapes.decoder import Prompt
from stapes.decoder.prompt import check_prompt
from stapes.errors import CheckpointError, ConfigError, ModelError
from stapes.models.qwen3_asr import Qwen3Asr

UNTIED = Sizes(**{**vars(SMALL), "tied": False})
HEAD = "lm_head.weight"
EMBEDDING = "model.language_model.embed_tokens.weight"


def logits(model: Qwen3Asr) -> np.ndarray:
    """Of a prompt with audio."""
    embeddings = model.encoder.encode(np.cos(np.arange(150 * 128)).reshape(150, 128).astype("f4"))
    prompt: Prompt = model.prompts.build(embeddings, "some words")
    checked = check_prompt(prompt, 1, model.decoder.spec)
    return np.asarray(model.decoder.new_session().prefill(checked, want="logits"))


# -- tied and untied -----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["hf", "original"])
@pytest.mark.parametrize("sizes", [SMALL, UNTIED], ids=["tied", "untied"])
def test_both_layouts_and_file_types_give_the_same_logits(
    tmp_path: Path, sizes: Sizes, layout: str
):
    tensors = bf16_rounded(random_tensors(sizes))
    expected = logits(load(write_checkpoint(tmp_path / "a", sizes, tensors=tensors)))
    for dtype in ("F32", "BF16"):
        other = write_checkpoint(
            tmp_path / f"{layout}-{dtype}", sizes, layout=layout, dtype=dtype, tensors=tensors
        )
        assert np.array_equal(logits(load(other)), expected)


def test_an_untied_head_is_used_and_a_tied_one_is_the_embedding(tmp_path: Path):
    tensors = random_tensors(UNTIED)
    own = load(write_checkpoint(tmp_path / "own", UNTIED, tensors=tensors))
    same = load(write_checkpoint(tmp_path / "same", UNTIED,
                                 tensors=tensors | {HEAD: tensors[EMBEDDING]}))  # fmt: skip
    bare = {name: values for name, values in tensors.items() if name != HEAD}
    tied = load(write_checkpoint(tmp_path / "tied", SMALL, tensors=bare))
    assert tied.decoder.weights.head is tied.decoder.weights.embedding
    assert np.array_equal(logits(tied), logits(same))
    assert not np.allclose(logits(own), logits(same))


@pytest.mark.parametrize("layout", ["hf", "original"])
def test_an_untied_model_without_a_head_is_refused(tmp_path: Path, layout: str):
    write_checkpoint(tmp_path, UNTIED, layout=layout)
    name = HEAD if layout == "hf" else f"thinker.{HEAD}"
    tensors = random_tensors(UNTIED)
    named = tensors if layout == "hf" else original_tensors(tensors)
    write_safetensors(
        tmp_path / "model.safetensors", {n: values for n, values in named.items() if n != name}
    )
    with pytest.raises(CheckpointError, match=f"1 missing: {name}"):
        load(tmp_path)


def test_a_tied_model_may_hold_its_head_twice(tmp_path: Path):
    tensors = random_tensors(SMALL)
    expected = logits(load(write_checkpoint(tmp_path / "once", SMALL)))
    twice = tensors | {HEAD: tensors[EMBEDDING]}
    assert np.array_equal(
        logits(load(write_checkpoint(tmp_path / "twice", SMALL, tensors=twice))), expected
    )


@pytest.mark.parametrize("layout", ["hf", "original"])
def test_a_tied_model_with_another_head_is_refused(tmp_path: Path, layout: str):
    tensors = random_tensors(UNTIED)
    write_checkpoint(tmp_path, SMALL, layout=layout, tensors=tensors)
    with pytest.raises(CheckpointError, match=r"tied, but .*lm_head\.weight differs"):
        load(tmp_path)


def test_a_tied_model_with_a_head_of_another_shape_is_refused(tmp_path: Path):
    tensors = random_tensors(SMALL)
    head = {HEAD: tensors[EMBEDDING][:100]}
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs"):
        load(write_checkpoint(tmp_path, SMALL, tensors=tensors | head))


# -- lists of what is wrong ----------------------------------------------------------------------


def test_missing_unexpected_and_mis_shaped_tensors_are_all_listed(tmp_path: Path):
    tensors = random_tensors(SMALL)
    missing = ["model.audio_tower.ln_post.bias", "model.language_model.norm.weight"]
    for name in missing:
        del tensors[name]
    tensors["model.language_model.layers.7.extra"] = np.zeros(3, np.float32)
    wrong = "model.audio_tower.layers.0.fc1.weight"
    tensors[wrong] = tensors[wrong].T.copy()
    with pytest.raises(CheckpointError) as refused:
        load(write_checkpoint(tmp_path, SMALL, tensors=tensors))
    message = str(refused.value)
    assert f"2 missing: {', '.join(missing)}" in message
    assert "1 unexpected: model.language_model.layers.7.extra" in message
    assert f"1 mis-shaped: {wrong} (expected [96, 32], found [32, 96])" in message


@pytest.mark.parametrize("name", random_tensors(SMALL))
def test_every_single_tensor_is_needed(name: str, pristine: Path, tmp_path: Path):
    tensors = random_tensors(SMALL)
    del tensors[name]
    for file in pristine.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    write_safetensors(tmp_path / "model.safetensors", tensors)
    with pytest.raises(CheckpointError, match=f"1 missing: {name}"):
        load(tmp_path)


def test_a_checkpoint_of_the_other_layout_is_told_apart_by_its_config(folder: Path):
    tensors = original_tensors(random_tensors(SMALL))
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(CheckpointError, match=r"unexpected: thinker\."):
        load(folder)


@pytest.mark.parametrize("weights", ["f32", "bf16", "q8"])
@pytest.mark.parametrize(
    "name",
    [
        "model.audio_tower.conv2d1.weight",
        "model.audio_tower.conv2d2.bias",
        "model.audio_tower.conv_out.weight",
        "model.audio_tower.layers.0.self_attn.k_proj.weight",
        "model.multi_modal_projector.linear_2.weight",
        "model.audio_tower.ln_post.weight",
    ],
)
def test_values_that_are_not_finite_are_refused_by_name(folder: Path, name: str, weights: str):
    tensors = random_tensors(SMALL)
    tensors[name].flat[2] = np.nan
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(CheckpointError, match=name.removesuffix(".weight")):
        load(folder, weights=weights)


def test_encoder_and_decoder_must_meet(tmp_path: Path):
    config = hf_config(SMALL)
    config["audio_config"]["output_dim"] = 65
    tensors: Tensors = random_tensors(SMALL)
    for kind in ("weight", "bias"):
        name = f"model.multi_modal_projector.linear_2.{kind}"
        tensors[name] = np.resize(tensors[name], (65, *tensors[name].shape[1:]))
    with pytest.raises(ConfigError, match=r"output_dim is 65, .* hidden_size is 64"):
        load(write_checkpoint(tmp_path, SMALL, config=config, tensors=tensors))


# -- shards --------------------------------------------------------------------------------------


@pytest.fixture
def sharded(folder: Path) -> Path:
    (folder / "model.safetensors").unlink()
    write_shards(folder, random_tensors(SMALL), 3)
    return folder


def test_shards_are_the_same_model(sharded: Path, model: Qwen3Asr):
    assert np.array_equal(logits(load(sharded)), logits(model))


def test_a_missing_shard_is_named(sharded: Path):
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match="model-00002-of-00003"):
        load(sharded)


def test_all_missing_shards_are_named(sharded: Path):
    for file in sharded.glob("*.safetensors"):
        file.unlink()
    with pytest.raises(ModelError) as refused:
        load(sharded)
    for number in (1, 2, 3):
        assert f"model-0000{number}-of-00003" in str(refused.value)


def test_a_stray_file_beside_the_shards_is_not_read(sharded: Path, model: Qwen3Asr):
    zeros = {name: values * 0 for name, values in random_tensors(SMALL).items()}
    write_safetensors(sharded / "model.safetensors", zeros)
    assert np.array_equal(logits(load(sharded)), logits(model))


def test_a_tensor_that_the_index_leaves_out_is_missing(sharded: Path):
    path = sharded / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"]["model.audio_tower.conv2d1.bias"]
    path.write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model\.audio_tower\.conv2d1\.bias"):
        load(sharded)


def test_no_weights_at_all_is_an_error(folder: Path):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="safetensors"):
        load(folder)


@pytest.mark.parametrize("size", [0, 7, 8, 5_000, -1])
def test_a_cut_file_is_an_error(folder: Path, size: int):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:size])
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load(folder)


# -- tokenizer and config together -----------------------------------------------------------------


def test_config_and_tokenizer_must_agree_on_the_audio_token(tmp_path: Path):
    config = hf_config(SMALL)
    config["audio_token_id"] = 151646  # the reference class's default
    with pytest.raises(ConfigError, match="audio_token_id is 151646"):
        load(write_checkpoint(tmp_path, SMALL, config=config))


@pytest.mark.parametrize("vocab_size", [505, 506])
def test_control_tokens_outside_the_vocabulary_are_refused(tmp_path: Path, vocab_size: int):
    sizes = Sizes(**{**vars(SMALL), "vocab_size": vocab_size})
    with pytest.raises(ConfigError, match=f"506.*vocab_size.*{vocab_size}"):
        load(write_checkpoint(tmp_path, sizes))


@pytest.mark.parametrize(
    "name", ["<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>", "<asr_text>"]
)
def test_a_tokenizer_without_a_control_token_is_refused(folder: Path, name: str):
    path = folder / "tokenizer.json"
    spec = json.loads(path.read_text("utf-8"))
    spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] != name]
    path.write_text(json.dumps(spec), "utf-8")
    with pytest.raises(ConfigError, match=rf"no control token '{name.replace('|', '.')}'"):
        load(folder)


def test_what_is_loaded_survives_the_files(folder: Path, model: Qwen3Asr):
    loaded = load(folder)
    sound = babble(16_000)
    expected = model.transcribe(sound, sample_rate=16_000)
    for file in folder.iterdir():
        file.unlink()
    assert loaded.transcribe(sound, sample_rate=16_000).token_ids == expected.token_ids
