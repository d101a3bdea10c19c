"""Text models from Hugging Face folders and GGUF files, without transformers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decoder.tiny import all_logits, random_prompt
from stapes.decoder import Decoder, GenerateOptions, Prompt, generate
from stapes.errors import CheckpointError, ConfigError, ModelError
from stapes.models.qwen_text import TextModel, load_text_model
from stapes.options import RuntimeOptions
from stapes.weights import pack_reference
from text.bpe_folder import tokenizer_config, write_json
from text_models import (
    CONTROL,
    KINDS,
    QWEN2,
    QWEN3,
    TEMPLATE,
    Sizes,
    Tensors,
    gguf_metadata,
    gguf_names,
    random_tensors,
    write_folder,
    write_gguf,
)

each_kind = pytest.mark.parametrize("sizes", KINDS.values(), ids=KINDS)
each_architecture = pytest.mark.parametrize("sizes", [QWEN2, QWEN3], ids=["qwen2", "qwen3"])


def load(path: Path, weights: Any = "f32") -> TextModel:
    return load_text_model(path, RuntimeOptions(weights, "f32", 1))


def logits(decoder: Decoder, length: int = 40) -> np.ndarray:
    return all_logits(decoder, random_prompt(length, spec=decoder.spec))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


# -- what is loaded ------------------------------------------------------------------------------


@each_kind
def test_a_folder_and_a_gguf_file_are_the_same_model(tmp_path, path, sizes):
    tensors = random_tensors(sizes)
    folder = load(write_folder(tmp_path / "hf", sizes, tensors))
    write_gguf(path, sizes, tensors)
    file = load(path)
    same = dataclasses.replace(
        file.decoder.spec,
        rms_norm_eps=sizes.rms_norm_eps,  # the file holds it in f32
        eos_token_ids=folder.decoder.spec.eos_token_ids,
    )
    assert same == folder.decoder.spec
    assert np.float32(file.decoder.spec.rms_norm_eps) == np.float32(sizes.rms_norm_eps)
    np.testing.assert_array_equal(logits(file.decoder), logits(folder.decoder))
    assert file.tokenizer.encode("The quick fox") == folder.tokenizer.encode("The quick fox")


@each_kind
def test_an_answer_depends_on_the_prompt_and_changes_along_it(path, sizes):
    write_gguf(path, sizes, random_tensors(sizes))
    decoder = load(path).decoder
    answers = [
        generate(decoder.new_session(), Prompt(ids), GenerateOptions(20)).token_ids
        for ids in ([1, 2, 3], [7, 8])
    ]
    assert answers[0] != answers[1]
    assert all(len(set(answer)) > 4 for answer in answers)


@each_architecture
def test_eos_template_and_prefix_of_a_file(path, sizes):
    write_gguf(path, sizes, random_tensors(sizes), metadata={"tokenizer.ggml.add_bos_token": True})
    model = load(path)
    assert model.decoder.spec.eos_token_ids == {CONTROL["<|im_end|>"], CONTROL["<|endoftext|>"]}
    assert model.chat_template == TEMPLATE
    assert model.prefix_ids == (CONTROL["<|endoftext|>"],)
    assert model.load_s > 0


def test_a_file_without_a_template(path):
    write_gguf(path, QWEN3, random_tensors(QWEN3), metadata={"tokenizer.chat_template": None})
    assert load(path).chat_template is None


@pytest.mark.parametrize("listed", [False, True])
def test_templates_of_a_folder(tmp_path, listed):
    folder = write_folder(tmp_path, QWEN3, random_tensors(QWEN3))
    assert load(folder).chat_template is None
    template = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "a"}]
    config = {**tokenizer_config(), "chat_template": template if listed else "a"}
    write_json(folder / "tokenizer_config.json", config)
    assert load(folder).chat_template == "a"
    (folder / "chat_template.jinja").write_text("b")
    assert load(folder).chat_template == "b"
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read as text"):
        load(folder)


def test_a_template_that_is_none(tmp_path):
    folder = write_folder(tmp_path, QWEN3, random_tensors(QWEN3))
    write_json(folder / "tokenizer_config.json", {**tokenizer_config(), "chat_template": [1]})
    with pytest.raises(ConfigError, match="chat_template must be text"):
        load(folder)


def test_values_that_a_file_may_leave_out(path):
    sizes = Sizes("qwen2", num_attention_heads=2, num_key_value_heads=2)
    left_out = ("head_count_kv", "key_length", "value_length")
    tensors = random_tensors(sizes)
    write_gguf(path, sizes, tensors, metadata={f"qwen2.attention.{k}": None for k in left_out})
    spec = load(path).decoder.spec
    assert (spec.num_key_value_heads, spec.head_dim) == (2, 32)


# -- types ---------------------------------------------------------------------------------------


def q8_matrices(model: TextModel) -> list[np.ndarray]:
    return [matrix.to_f32() for matrix in model.decoder.weights.matrices()]


@each_kind
def test_q8_0_keeps_its_exact_values(path, sizes):
    held = write_gguf(path, sizes, random_tensors(sizes), lambda name: "Q8_0")
    model = load(path, "q8")
    for packed, values in zip(q8_matrices(model), stacked(sizes, held), strict=True):
        assert packed.tobytes() == values.tobytes()


def stacked(sizes: Sizes, held: Tensors) -> list[np.ndarray]:
    """The matrices of a decoder, in the order of `DecoderWeights.matrices`."""

    def stack(i: int, *parts: str) -> np.ndarray:
        return np.concatenate([held[f"model.layers.{i}.{part}.weight"] for part in parts])

    found = [held["model.embed_tokens.weight"]]
    for i in range(sizes.num_hidden_layers):
        found.append(stack(i, *(f"self_attn.{x}_proj" for x in "qkv")))
        found.append(stack(i, "self_attn.o_proj"))
        found.append(stack(i, "mlp.gate_proj", "mlp.up_proj"))
        found.append(stack(i, "mlp.down_proj"))
    return found + ([] if sizes.tie_word_embeddings else [held["lm_head.weight"]])


def mixed(name: str) -> str:
    """Neighbours in one stack have different types."""
    kinds = {"q": "Q8_0", "k": "Q5_0", "v": "F16", "gate": "Q4_1", "up": "Q8_0", "down": "Q5_1"}
    part = name.split(".")[-2].removeprefix("attn_").removeprefix("ffn_")
    return kinds.get(part, "BF16")


@each_kind
@pytest.mark.parametrize("weights", ["f32", "bf16", "q8", "q4"])
def test_files_of_mixed_types(path, sizes, weights):
    held = write_gguf(path, sizes, random_tensors(sizes), mixed)
    model = load(path, weights)
    for i, (packed, values) in enumerate(
        zip(q8_matrices(model), stacked(sizes, held), strict=True)
    ):
        is_qkv = i % 4 == 1 and i <= 4 * sizes.num_hidden_layers
        format = "q8" if weights == "q4" and is_qkv else weights
        np.testing.assert_array_equal(packed, pack_reference(values, format).to_f32())
    assert np.isfinite(logits(model.decoder)).all()


@pytest.mark.parametrize("weights", ["f32", "q8"])
def test_stacks_whose_parts_do_not_fill_tiles(path, weights):
    sizes = Sizes("qwen2", num_attention_heads=3, num_key_value_heads=1, head_dim=10)
    sizes = dataclasses.replace(sizes, intermediate_size=90)
    # rows of 30 and of 90 are no whole blocks
    plain = ("attn_output.weight", "ffn_down.weight")
    types = {"attn_q": "Q8_0", "attn_k": "Q5_0", "attn_v": "Q8_0", "ffn_gate": "F32"}

    def kinds(name: str) -> str:
        return "F32" if name.endswith(plain) else types.get(name.split(".")[-2], "Q8_0")

    metadata = {"qwen2.attention.key_length": 10}
    held = write_gguf(path, sizes, random_tensors(sizes), kinds, metadata=metadata)
    model = load(path, weights)
    for packed, values in zip(q8_matrices(model), stacked(sizes, held), strict=True):
        np.testing.assert_array_equal(packed, pack_reference(values, weights).to_f32())


# -- what is refused -----------------------------------------------------------------------------


@each_kind
def test_names_are_those_of_the_gguf_package(path, sizes):
    """Each of them, renamed: both names are in the error, so every one of them is asked for."""
    tensors = random_tensors(sizes)
    for name in gguf_names(sizes).values():
        if name == "output.weight":
            continue  # without it the head is the embedding
        write_gguf(path, sizes, tensors, rename={name: "blk.renamed"})
        with pytest.raises(CheckpointError) as caught:
            load(path)
        assert f"1 missing: {name}; 1 unexpected: blk.renamed." in str(caught.value)


def test_without_a_head_of_its_own_the_head_is_the_embedding(path):
    sizes = KINDS["qwen3-untied"]
    write_gguf(path, sizes, random_tensors(sizes), rename={"output.weight": ""})
    weights = load(path).decoder.weights
    assert weights.head is weights.embedding


@pytest.mark.parametrize("name", ["rope_freqs.weight", "blk.2.attn_q.weight", "output.bias"])
def test_tensors_that_nothing_would_read(path, name):
    write_gguf(path, QWEN3, random_tensors(QWEN3), more={name: np.zeros((4, 4), np.float32)})
    with pytest.raises(CheckpointError, match=f"1 unexpected: {name}"):
        load(path)


@pytest.mark.parametrize(("sizes", "what"), [(QWEN2, "bias"), (QWEN3, "norm")])
def test_what_tells_the_two_apart_is_never_dropped(path, sizes, what):
    """Biases and head norms, in a file that says it is the other architecture."""
    other = dataclasses.replace(sizes, model_type="qwen3" if sizes is QWEN2 else "qwen2")
    tensors, metadata = random_tensors(sizes), gguf_metadata(other)
    write_gguf(path, sizes, tensors, arch=other.model_type, metadata=metadata)
    with pytest.raises(CheckpointError, match=rf"missing: .*unexpected: .*attn_q\S*{what}"):
        load(path)


def test_shapes_that_do_not_fit(path):
    metadata = {"qwen3.feed_forward_length": 128}
    write_gguf(path, QWEN3, random_tensors(QWEN3), metadata=metadata)
    with pytest.raises(
        CheckpointError, match=r"blk\.0\.ffn_down\.weight \(expected \[64, 128\], found"
    ):
        load(path)


def test_unreadable_types_are_refused_before_anything_is_loaded(path):
    sizes = dataclasses.replace(QWEN3, hidden_size=256)
    write_gguf(path, sizes, random_tensors(sizes), more={"x": np.zeros(3, np.int32)})
    with pytest.raises(CheckpointError, match=r"1 tensors of types that cannot be read: x \(I32\)"):
        load(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", None),
        ("block_count", 0),
        ("block_count", 1_000_000),
        ("embedding_length", "64"),
        ("embedding_length", None),
        ("feed_forward_length", [96, 96]),
        ("attention.head_count", 0),
        ("attention.head_count", 3),
        ("attention.key_length", 31),
        ("attention.value_length", 16),
        ("attention.layer_norm_rms_epsilon", None),
        ("rope.freq_base", None),
        ("rope.freq_base", float("inf")),
        ("rope.dimension_count", 16),
        ("rope.scaling.type", "yarn"),
        ("rope.scaling.factor", 4.0),
        ("attention.sliding_window", 128),
        ("attention.causal", False),
        ("logit_scale", 0.5),
        ("expert_count", 8),
        ("pooling_type", 3),
        ("vocab_size", 511),
        ("context_length", None),
    ],
)
def test_metadata_that_is_missing_or_asks_for_more(path, key, value):
    write_gguf(path, QWEN3, random_tensors(QWEN3), metadata={f"qwen3.{key}": value})
    with pytest.raises(ConfigError):
        load(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope.scaling.type", "none"),
        ("rope.dimension_count", 32),
        ("attention.causal", True),
        ("vocab_size", 512),
    ],
)
def test_metadata_that_changes_nothing(path, key, value):
    write_gguf(path, QWEN3, random_tensors(QWEN3), metadata={f"qwen3.{key}": value})
    load(path)


@pytest.mark.parametrize("arch", ["llama", "qwen2moe", "qwen3moe", "qwen2vl"])
def test_other_architectures(path, arch):
    write_gguf(path, QWEN3, random_tensors(QWEN3), arch=arch)
    with pytest.raises(ConfigError, match=f"general.architecture '{arch}'"):
        load(path)


def test_files_that_are_no_whole_model(path):
    write_gguf(path, QWEN3, random_tensors(QWEN3), metadata={"split.count": 3})
    with pytest.raises(ConfigError, match="one of 3 parts"):
        load(path)
    write_gguf(path, QWEN3, random_tensors(QWEN3), metadata={"general.type": "adapter"})
    with pytest.raises(ConfigError, match="type is 'adapter'"):
        load(path)


def test_paths_that_are_no_model(tmp_path):
    with pytest.raises(ModelError, match="does not exist"):
        load(tmp_path / "absent")
    (tmp_path / "x.bin").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="neither a converted model nor GGUF"):
        load(tmp_path / "x.bin")
    with pytest.raises(ModelError):
        load(tmp_path)


# -- folders -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "key", "value"),
    [
        (QWEN3, "model_type", "llama"),
        (QWEN3, "hidden_act", "gelu"),
        (QWEN3, "use_sliding_window", True),
        (QWEN2, "layer_types", ["full_attention", "sliding_attention"]),
        (QWEN3, "attention_bias", True),
        (QWEN3, "hidden_size", None),
        (QWEN2, "num_key_value_heads", None),
        (QWEN3, "rope_parameters", {"rope_type": "yarn", "rope_theta": 1e6}),
        (QWEN3, "num_hidden_layers", 10**6),
        (QWEN3, "tie_word_embeddings", "yes"),
    ],
)
def test_configurations_that_are_refused(tmp_path, sizes, key, value):
    write_folder(tmp_path, sizes, random_tensors(sizes), **{key: value})
    with pytest.raises(ConfigError):
        load(tmp_path)


def test_a_head_dim_that_is_not_given(tmp_path):
    sizes = dataclasses.replace(QWEN2, num_key_value_heads=1)
    write_folder(tmp_path, sizes, random_tensors(sizes), layer_types=["full_attention"] * 2)
    assert load(tmp_path).decoder.spec.head_dim == 32
    write_folder(tmp_path, sizes, random_tensors(sizes), num_attention_heads=3)
    with pytest.raises(ConfigError, match="64 does not divide into 3 heads"):
        load(tmp_path)


def test_a_tie_that_is_not_mentioned_is_none(tmp_path):
    write_folder(tmp_path, QWEN3, random_tensors(QWEN3), tie_word_embeddings=None)
    with pytest.raises(CheckpointError, match=r"missing: lm_head\.weight"):
        load(tmp_path)


def test_a_tied_folder_may_carry_its_head(tmp_path):
    tensors = random_tensors(QWEN3)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    load(write_folder(tmp_path, QWEN3, tensors))
    tensors["lm_head.weight"] = tensors["lm_head.weight"] * np.float32(1.5)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs from model\.embed_tokens"):
        load(write_folder(tmp_path, QWEN3, tensors))


def test_tensors_missing_from_a_folder(tmp_path):
    tensors = random_tensors(QWEN2)
    tensors["model.layers.0.self_attn.q_proj.biass"] = tensors.pop(
        "model.layers.0.self_attn.q_proj.bias"
    )
    with pytest.raises(CheckpointError, match=r"1 missing: .*q_proj\.bias; 1 unexpected: .*biass"):
        load(write_folder(tmp_path, QWEN2, tensors))
