"""Whatever stands in the files, loading ends in a StapesError or in a tokenizer that encodes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stapes.errors import StapesError
from stapes.text.tokenizer import load_tokenizer
from stapes.text.tokenizer_files import byte_level_spec

MODEL = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "fuse_unk": False,
    "ignore_merges": False,
    "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3},
    "merges": [["a", "b"]],
}
ADDED = {"id": 4, "content": "<x>", "special": True}
SPEC = {**byte_level_spec(MODEL, False), "added_tokens": [ADDED]}
CONFIG = {"added_tokens_decoder": {"4": {"content": "<x>"}}, "eos_token": "<x>"}
LIGHT = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))

values = st.recursive(
    st.sampled_from([None, True, False, 0, -1, 2, 3.5, 2**31, 2**70, "", "a", "(", "Nope", "<x>"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=3,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything inside a JSON value."""
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value) if isinstance(value, list) else 0)
    )
    return [p for key in keys for p in [(*path, key), *places(value[key], (*path, key))]]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    result = copy.deepcopy(value)
    inner = result
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def load_and_encode(folder: Path, spec: Any, config: Any) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    try:
        tokenizer = load_tokenizer(folder)
        ids = tokenizer.encode("ab <x>ba")
    except StapesError:
        return
    assert not any(tokenizer.is_control(token_id) for token_id in ids)
    tokenizer.decode(ids)


@LIGHT
@given(path=st.sampled_from(places(SPEC)), new=values)
def test_tokenizer_json(folder: Path, path: tuple[Any, ...], new: Any):
    load_and_encode(folder, changed(SPEC, path, new), CONFIG)


@LIGHT
@given(path=st.sampled_from(places(CONFIG)), new=values)
def test_tokenizer_config(folder: Path, path: tuple[Any, ...], new: Any):
    load_and_encode(folder, SPEC, changed(CONFIG, path, new))
