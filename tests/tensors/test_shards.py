from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stapes.errors import TensorFileError
from stapes.tensors import open_safetensors

INDEX = "model.safetensors.index.json"
ONE = "model-00001-of-00003.safetensors"
TWO = "model-00002-of-00003.safetensors"
THREE = "model-00003-of-00003.safetensors"
F = ("F32", (4,))
FILES = {ONE: {"a": F, "b": F}, TWO: {"c": F}, THREE: {"d": F, "e": ("BF16", (3,))}}


def test_shards_are_one_store(shards):
    folder = shards(FILES)
    with open_safetensors(folder) as store:
        assert set(store) == {"a", "b", "c", "d", "e"}
        assert store.files == (folder / ONE, folder / TWO, folder / THREE)
        assert store["e"].raw().shape == (3,)


def test_a_stray_single_file_beside_the_shards_is_ignored(shards, write):
    folder = shards(FILES)
    with open_safetensors(folder) as store:
        before = store["a"].to_f32().copy()
    stray = {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}
    write(stray, bytes(16))
    with open_safetensors(folder) as store:
        assert folder / "model.safetensors" not in store.files
        np.testing.assert_array_equal(store["a"].raw(), before)


def test_surplus_shards_are_ignored(shards, write):
    folder = shards(FILES)
    (folder / "model-00009-of-00009.safetensors").write_bytes(b"junk")
    assert len(open_safetensors(folder)) == 5


def test_one_missing_shard_is_named(shards):
    folder = shards(FILES)
    (folder / TWO).unlink()
    with pytest.raises(TensorFileError, match=rf"3 files, of which 1 are missing: {TWO}\."):
        open_safetensors(folder)


def test_all_missing_shards_are_named(shards):
    folder = shards(FILES)
    for name in FILES:
        (folder / name).unlink()
    with pytest.raises(TensorFileError, match=rf"3 are missing: {ONE}, {TWO}, {THREE}"):
        open_safetensors(folder)


def test_missing_and_surplus_tensors_are_listed_shard_by_shard(shards):
    weight_map = {"a": ONE, "x": ONE, "y": ONE, "c": THREE, "d": THREE, "e": THREE, "z": TWO}
    with pytest.raises(TensorFileError) as caught:
        open_safetensors(shards(FILES, weight_map))
    message = str(caught.value)
    assert f"{ONE} lacks x, y" in message
    assert f"{ONE} holds, against the index, b" in message
    assert f"{TWO} lacks z" in message
    assert f"{TWO} holds, against the index, c" in message
    assert f"{THREE} lacks c" in message


def test_a_name_in_two_shards_is_refused(shards):
    files = {ONE: {"a": F}, TWO: {"a": F, "b": F}}
    with pytest.raises(TensorFileError, match=f"{ONE} holds, against the index, a"):
        open_safetensors(shards(files, {"a": TWO, "b": TWO} | {"c": ONE}))


def test_a_damaged_shard_is_named(shards):
    folder = shards(FILES)
    whole = (folder / THREE).read_bytes()
    (folder / THREE).write_bytes(whole[:-1])
    with pytest.raises(TensorFileError, match=f"{THREE} is truncated"):
        open_safetensors(folder)


@pytest.mark.parametrize(
    "shard",
    [
        "../x.safetensors",
        "/etc/passwd",
        "sub/x.safetensors",
        "..",
        ".",
        "",
        "a\\b",
        "C:x",
        "x\0",
        3,
    ],
)
def test_shards_outside_the_folder_are_refused(shards, shard):
    with pytest.raises(TensorFileError, match=r"beside the index"):
        open_safetensors(shards(FILES, {"a": shard}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"weight_map": {}}',
        '{"weight_map": []}',
        '{"weight_map": {"a": "x", "a": "y"}}',
    ],
)
def test_a_malformed_index(tmp_path: Path, text):
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(TensorFileError, match=r"index\.json"):
        open_safetensors(tmp_path)


def test_an_index_that_is_no_text(tmp_path: Path):
    (tmp_path / INDEX).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TensorFileError, match="cannot be read as JSON"):
        open_safetensors(tmp_path)


def test_symbolic_links_to_shards_work(shards, tmp_path: Path):
    folder = shards({"x.safetensors": {"a": F}})
    blob = tmp_path / "blobs"
    blob.mkdir()
    (folder / "x.safetensors").rename(blob / "1234")
    (folder / "x.safetensors").symlink_to(blob / "1234")
    assert "a" in open_safetensors(folder)


def test_the_index_file_is_json_of_the_usual_form(shards):
    fields = json.loads((shards(FILES) / INDEX).read_text())
    assert fields["weight_map"]["c"] == TWO
