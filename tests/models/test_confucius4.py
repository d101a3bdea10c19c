"""Confucius4-R2T2 is a Qwen3-ASR-1.7B of the first layout: the same code, its own files."""

from __future__ import annotations

import dataclasses
import json
import shutil
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stapes
from checkpoints import (
    CONTROL,
    Sizes,
    Tensors,
    bf16_rounded,
    original_config,
    original_tensors,
    random_tensors,
    write_checkpoint,
    write_safetensors,
)
from checkpoints import hf_config as flat_config
from models.conftest import load
from models.rigged import rig, says
from sounds import babble
from stapes.errors import CheckpointError, ConfigError
from stapes.models.convert import convert
from stapes.models.description import describe
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.models.qwen3_asr.config import read_config
from stapes.models.qwen3_asr.networks import expected_tensors
from stapes.options import RuntimeOptions
from stapes.text.tokenizer import load_tokenizer
from text.bpe_folder import write_json, write_new_layout

SIZES = Sizes(
    d_model=32, downsample_hidden_size=4, encoder_layers=1, num_hidden_layers=1, rope_theta=5e6
)
FULL = Sizes(
    1024, 24, 16, 4096, 480, 128, 800, 2048, 28, 16, 8, 128, 6144, 151936, 65536, 1e6, True
)


def write_r2t2(folder: Path) -> Path:
    """The files of the published repository: both tokenizer layouts, one bf16 file, no head."""
    write_checkpoint(folder, SIZES, layout="original")
    write_safetensors(folder / "model.safetensors", headless(), "BF16")
    write_new_layout(folder)
    write_json(folder / "added_tokens.json", CONTROL)
    write_json(folder / "special_tokens_map.json", {"eos_token": "<|im_end|>"})
    write_json(folder / "chat_template.json", {"chat_template": ""})
    return folder


def headless() -> Tensors:
    tensors = original_tensors(bf16_rounded(random_tensors(SIZES)))
    return {name: t for name, t in tensors.items() if "lm_head" not in name}


@pytest.fixture(scope="session")
def pristine_r2t2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_r2t2(tmp_path_factory.mktemp("r2t2"))


def ids(model: Any) -> tuple[int, ...]:
    answer = model.transcribe(babble(40_000), sample_rate=16_000, vad=False, max_new_tokens=20)
    return tuple(answer.token_ids)


def test_it_loads_as_what_it_is(pristine_r2t2: Path):
    model = load(pristine_r2t2)
    assert isinstance(model, Qwen3Asr)
    assert model.config.decoder.names.layer_prefix == "thinker.model.layers"
    assert model.config.decoder.rope_theta == 5e6
    assert describe(pristine_r2t2, RuntimeOptions())["architecture"] == "qwen3_asr"


def test_it_answers_as_the_same_weights_in_the_other_layout(pristine_r2t2: Path, tmp_path: Path):
    tensors = bf16_rounded(random_tensors(SIZES))
    twin = write_checkpoint(tmp_path / "hf", SIZES, tensors=tensors)
    assert ids(load(pristine_r2t2)) == ids(load(twin))
    assert len(set(ids(load(pristine_r2t2)))) > 5


def test_the_rotary_base_is_the_files(pristine_r2t2: Path, tmp_path: Path):
    folder = shutil.copytree(pristine_r2t2, tmp_path / "x")
    values = original_config(flat_config(dataclasses.replace(SIZES, rope_theta=1e4)))
    write_json(folder / "config.json", values)
    assert load(folder).config.decoder.rope_theta == 1e4
    assert ids(load(folder)) != ids(load(pristine_r2t2))
    del values["thinker_config"]["text_config"]["rope_theta"]
    write_json(folder / "config.json", values)
    with pytest.raises(ConfigError, match="no rope_theta"):
        load(folder)


def test_the_published_sizes(pristine_r2t2: Path, tmp_path: Path):
    """2.04 billion parameters, in a repository of 4.09 GB."""
    folder = shutil.copytree(pristine_r2t2, tmp_path / "x")
    (folder / "config.json").write_text(json.dumps(original_config(flat_config(FULL))))
    config = read_config(folder, load_tokenizer(folder))
    count = sum(map(prod, expected_tensors(config).values()))
    assert 2.03e9 < count < 2.045e9
    assert config.decoder.tie_word_embeddings


def test_a_converted_file_answers_as_before(pristine_r2t2: Path, tmp_path: Path):
    file = tmp_path / "r2t2.stapes"
    convert(pristine_r2t2, file, RuntimeOptions("q8", threads=1))
    models = [stapes.load(p, kv="f32", threads=1) for p in (file, pristine_r2t2)]
    assert ids(models[0]) == ids(models[1])
    assert describe(file, RuntimeOptions())["converted"]


def test_context_and_language_are_qwen3_asrs(pristine_r2t2: Path):
    model = load(pristine_r2t2)
    rig(model, says(model, "the quick dogs", "German"))
    found = model.transcribe(babble(16_000), sample_rate=16_000, vad=False, context="fox")
    assert (found.text, found.language) == ("the quick dogs", "German")
    rows = np.zeros((2, 64), np.float32)
    prompt = model.build_prompt(rows, "fox", "German")
    assert CONTROL["<asr_text>"] in prompt.token_ids


def test_a_mark_in_an_answer_stays(pristine_r2t2: Path):
    """Files do not tell R2T2 from Qwen3-ASR, so text behind its "|" is not cut off here."""
    model = load(pristine_r2t2)
    rig(model, says(model, "the quick|"))
    assert model.transcribe(babble(16_000), sample_rate=16_000, vad=False).text == "the quick|"


def test_a_missing_tensor_is_named(pristine_r2t2: Path, tmp_path: Path):
    folder = shutil.copytree(pristine_r2t2, tmp_path / "x")
    name = "thinker.model.layers.0.self_attn.q_norm.weight"
    tensors = {n: t for n, t in headless().items() if n != name}
    write_safetensors(folder / "model.safetensors", tensors, "BF16")
    with pytest.raises(CheckpointError, match=f"1 missing: {name}"):
        load(folder)
