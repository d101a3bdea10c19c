from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stapes.errors import ConfigError
from stapes.text.eos import eos_token_ids
from stapes.text.tokenizer import load_tokenizer
from text.bpe_folder import control_ids, tokenizer_config, write_json, write_old_layout

IM_END = control_ids()["<|im_end|>"]


def ids_of(folder: Path, config: dict[str, Any], generation: Any = None, eos: Any = None):
    write_old_layout(folder, tokenizer_config() | {"eos_token": eos})
    if generation is not None:
        write_json(folder / "generation_config.json", generation)
    return eos_token_ids(folder, load_tokenizer(folder), config)


CASES: dict[str, tuple[dict[str, Any], Any, Any, set[int]]] = {
    "list in generation_config": ({}, {"eos_token_id": [1, 2]}, None, {1, 2}),
    "scalar in generation_config": ({}, {"eos_token_id": 0}, None, {0}),
    "scalar in config only": ({"eos_token_id": 7}, {}, None, {7}),
    "list in config": ({"eos_token_id": [7, 8]}, None, None, {7, 8}),
    "nested": ({"text_config": {"eos_token_id": 9}}, None, None, {9}),
    "twice nested": ({"thinker_config": {"text_config": {"eos_token_id": [9]}}}, None, None, {9}),
    "thinker": ({"thinker_config": {"eos_token_id": 4}}, None, None, {4}),
    "tokenizer only": ({}, None, "<|im_end|>", {IM_END}),
    "union": (
        {"eos_token_id": 1, "text_config": {"eos_token_id": [2, 1]}},
        {"eos_token_id": 3},
        "<|im_end|>",
        {1, 2, 3, IM_END},
    ),
    "null is nothing": ({"eos_token_id": None}, {"eos_token_id": [5]}, None, {5}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_union_of_all_files(tmp_path: Path, case: str):
    config, generation, eos, expected = CASES[case]
    assert ids_of(tmp_path, config, generation, eos) == expected


def test_no_end_at_all(tmp_path: Path):
    with pytest.raises(ConfigError, match="names an end-of-text token"):
        ids_of(tmp_path, {"text_config": {}}, {"eos_token_id": []})


def test_an_end_that_the_tokenizer_lacks(tmp_path: Path):
    with pytest.raises(ConfigError, match="'<nope>'"):
        ids_of(tmp_path, {"eos_token_id": 1}, None, "<nope>")


@pytest.mark.parametrize("value", ["2", -1, True, 1.0, [1, "2"], [None], {"a": 1}])
def test_ids_that_are_none(tmp_path: Path, value: Any):
    with pytest.raises(ConfigError, match=r"generation_config\.json: eos_token_id"):
        ids_of(tmp_path, {}, {"eos_token_id": value})
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(ConfigError, match=r"/config\.json: eos_token_id"):
        ids_of(tmp_path, {"text_config": {"eos_token_id": value}})


def test_a_malformed_generation_config(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"generation_config\.json must hold a JSON object"):
        ids_of(tmp_path, {}, [1])
