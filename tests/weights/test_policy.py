"""The rule by which some matrices keep more bits than was asked for."""

from __future__ import annotations

import pytest

from stapes.weights import matrix_format

LAYER = "model.layers.3.self_attn"


@pytest.mark.parametrize(
    "names",
    [
        [f"{LAYER}.{part}_proj.weight" for part in "qkv"],
        [f"{LAYER}.qkv_proj.weight"],
        [f"{LAYER}.k_proj.weight"],
    ],
    ids=len,
)
def test_queries_keys_and_values_stay_at_8_bits_in_q4(names: list[str]):
    assert matrix_format(names, "q4") == "q8"
    for format in ("f32", "bf16", "q8"):
        assert matrix_format(names, format) == format


@pytest.mark.parametrize(
    "name",
    [
        f"{LAYER}.o_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.embed_tokens.weight",
        "q_proj",
        "model.my_q_proj.weight",
    ],
)
def test_everything_else_is_what_was_asked_for(name: str):
    assert matrix_format([name], "q4") == "q4"
    assert matrix_format([f"{LAYER}.q_proj.weight", name], "q4") == "q4"
