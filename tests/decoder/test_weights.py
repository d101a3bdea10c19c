"""Which tensors a decoder takes, and what it computes with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decoder.numpy_model import numpy_logits
from decoder.tiny import (
    KINDS,
    QWEN2,
    SPEC,
    Source,
    all_logits,
    decoder,
    engine,
    random_prompt,
    random_tensors,
)
from stapes.decoder import DecoderSpec, expected_tensors, load_weights
from stapes.errors import CheckpointError
from stapes.weights import MatrixPacker
from stapes.weights.matrix import f32_to_bf16

LAYER_0 = {
    "model.layers.0.input_layernorm.weight": (64,),
    "model.layers.0.post_attention_layernorm.weight": (64,),
    "model.layers.0.self_attn.q_proj.weight": (128, 64),
    "model.layers.0.self_attn.k_proj.weight": (64, 64),
    "model.layers.0.self_attn.v_proj.weight": (64, 64),
    "model.layers.0.self_attn.o_proj.weight": (64, 128),
    "model.layers.0.self_attn.q_norm.weight": (32,),
    "model.layers.0.self_attn.k_norm.weight": (32,),
    "model.layers.0.mlp.gate_proj.weight": (96, 64),
    "model.layers.0.mlp.up_proj.weight": (96, 64),
    "model.layers.0.mlp.down_proj.weight": (64, 96),
}
OUTER = {"model.embed_tokens.weight": (512, 64), "model.norm.weight": (64,)}


def load(spec: DecoderSpec, source: Source, weights: str = "f32"):
    return load_weights(source, spec, MatrixPacker(engine(), weights))


def test_a_qwen3_decoder_takes_exactly_these_tensors():
    spec = replace(SPEC, num_hidden_layers=1)
    assert expected_tensors(spec) == OUTER | LAYER_0
    untied = replace(spec, tie_word_embeddings=False, logits_size=40)
    assert expected_tensors(untied) == OUTER | LAYER_0 | {"lm_head.weight": (40, 64)}


def test_a_qwen2_decoder_has_biases_on_q_k_v_alone():
    names = expected_tensors(QWEN2)
    biases = {name: shape for name, shape in names.items() if name.endswith(".bias")}
    prefix = "model.layers.1.self_attn"
    assert {n: s for n, s in biases.items() if ".1." in n} == {
        f"{prefix}.q_proj.bias": (64,),
        f"{prefix}.k_proj.bias": (64,),
        f"{prefix}.v_proj.bias": (64,),
    }
    assert not any("norm" in name for name in names if "self_attn" in name)


def test_a_packed_decoder_has_one_projection():
    names = expected_tensors(KINDS["qwen2-packed"])
    found = {name: shape for name, shape in names.items() if "layers.0.self_attn" in name}
    assert found == {
        "model.layers.0.self_attn.qkv_proj.weight": (192, 64),
        "model.layers.0.self_attn.qkv_proj.bias": (192,),
        "model.layers.0.self_attn.o_proj.weight": (64, 64),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_is_read_and_every_matrix_let_go(kind: str):
    source = Source(random_tensors(KINDS[kind]))
    load(KINDS[kind], source)
    assert source.read == set(expected_tensors(KINDS[kind]))
    matrices = {name for name, values in source.tensors.items() if values.ndim == 2}
    assert source.released == matrices


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_those_of_plain_numpy(kind: str):
    spec = KINDS[kind]
    tensors = random_tensors(spec)
    prompt = random_prompt(40, [0, 7, 8, 39], spec=spec)
    expected = numpy_logits(spec, tensors, prompt)
    assert expected.shape == (40, spec.head_size)
    assert expected.std() > 0.3
    assert np.abs(all_logits(decoder(spec, tensors), prompt) - expected).max() < 1e-3


@pytest.mark.parametrize("position", [0, 1, 7, 200])
@pytest.mark.parametrize("kind", ["qwen3", "qwen2"])
def test_logits_are_right_far_into_a_prompt(kind: str, position: int):
    tensors = random_tensors(KINDS[kind])
    prompt = random_prompt(201)
    expected = numpy_logits(KINDS[kind], tensors, prompt)
    found = all_logits(decoder(KINDS[kind], tensors), prompt)
    assert np.abs(found[position] - expected[position]).max() < 1e-3


def test_q_k_v_packed_or_not_is_the_same_decoder():
    tensors = random_tensors(QWEN2)
    packed = {name: values for name, values in tensors.items() if "_proj." not in name}
    packed |= {name: v for name, v in tensors.items() if "o_proj" in name or "mlp" in name}
    for i in range(QWEN2.num_hidden_layers):
        for kind in ("weight", "bias"):
            names = [f"model.layers.{i}.self_attn.{x}_proj.{kind}" for x in "qkv"]
            joined = np.concatenate([tensors[name] for name in names])
            packed[f"model.layers.{i}.self_attn.qkv_proj.{kind}"] = joined
    prompt = random_prompt(20)
    whole = all_logits(decoder(KINDS["qwen2-packed"], packed), prompt)
    assert np.array_equal(whole, all_logits(decoder(QWEN2, tensors), prompt))


def test_a_tied_head_is_the_embedding_and_an_untied_one_is_not():
    tied = load(SPEC, Source(random_tensors(SPEC)))
    assert tied.head is tied.embedding
    spec = KINDS["qwen3-untied"]
    tensors = random_tensors(spec)
    untied = load(spec, Source(tensors))
    assert np.array_equal(untied.head.to_f32(), tensors["lm_head.weight"])
    assert untied.nbytes - tied.nbytes == untied.head.nbytes


def test_stored_words_of_every_type_are_read():
    tensors = random_tensors(SPEC)
    halves = {name: values.astype(np.float16) for name, values in tensors.items()}
    weights = load(SPEC, Source(halves))
    assert np.array_equal(weights.embedding.to_f32(), halves["model.embed_tokens.weight"])
    matrices = {n: f32_to_bf16(v) if v.ndim == 2 else v for n, v in tensors.items()}
    weights = load(SPEC, Source(matrices), "bf16")
    expected = (matrices["model.embed_tokens.weight"].astype(np.uint32) << 16).view(np.float32)
    assert np.array_equal(weights.embedding.to_f32(), expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.k_proj.bias",
        "model.layers.1.post_attention_layernorm.weight",
    ],
)
def test_a_value_that_is_not_finite_is_refused_by_the_tensors_name(name: str, value: float):
    for weights in ("f32", "bf16", "q8"):
        tensors = random_tensors(QWEN2)
        tensors[name].flat[7] = value
        with pytest.raises(CheckpointError, match=name):
            load(QWEN2, Source(tensors), weights)
