"""A spec that cannot be is refused, and the message names the field and its value."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from decoder.tiny import SPEC
from stapes.errors import ConfigError

SIZES = [
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
]
NOT_SIZES: list[Any] = [0, -4, 2.5, 64.0, True, None, "64", float("nan")]


@pytest.mark.parametrize("value", NOT_SIZES, ids=repr)
@pytest.mark.parametrize("field", SIZES)
def test_sizes_are_positive_whole_numbers(field: str, value: Any):
    with pytest.raises(ConfigError) as refused:
        replace(SPEC, **{field: value})
    assert f"{field} is {value!r}" in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"num_attention_heads": 5}, "num_attention_heads", 5),
        ({"num_key_value_heads": 8}, "num_attention_heads", 4),
        ({"head_dim": 33}, "head_dim", 33),
        ({"rms_norm_eps": -1e-6}, "rms_norm_eps", -1e-6),
        ({"rms_norm_eps": 1.0}, "rms_norm_eps", 1.0),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps", float("nan")),
        ({"rope_theta": 0.0}, "rope_theta", 0.0),
        ({"rope_theta": -1e4}, "rope_theta", -1e4),
        ({"rope_theta": float("nan")}, "rope_theta", float("nan")),
        ({"rope_theta": float("inf")}, "rope_theta", float("inf")),
        ({"logits_size": 700}, "logits_size", 700),
        ({"logits_size": 40}, "logits_size", 40),
        ({"logits_size": 0, "tie_word_embeddings": False}, "logits_size", 0),
        ({"logits_size": -1, "tie_word_embeddings": False}, "logits_size", -1),
        ({"eos_token_ids": frozenset({511, 512})}, "eos_token_ids", [511, 512]),
        ({"eos_token_ids": frozenset({-1})}, "eos_token_ids", [-1]),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_contradicts_itself_is_refused(changes: dict[str, Any], field: str, value: Any):
    with pytest.raises(ConfigError) as refused:
        replace(SPEC, **changes)
    assert f"{field} is {value!r}" in str(refused.value)


def test_what_is_unusual_but_possible_is_taken():
    assert replace(SPEC, head_dim=2, hidden_size=1).q_size == 8
    assert replace(SPEC, num_key_value_heads=4).kv_size == 128
    assert replace(SPEC, logits_size=512).head_size == 512
    assert replace(SPEC, logits_size=9, tie_word_embeddings=False).head_size == 9
    assert replace(SPEC, eos_token_ids=frozenset()).eos_token_ids == frozenset()
    assert replace(SPEC, rms_norm_eps=0.0).rms_norm_eps == 0


def test_a_spec_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        SPEC.hidden_size = 65  # type: ignore[misc]
