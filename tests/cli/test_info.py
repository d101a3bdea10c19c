"""`stapes info`: what it says is so."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import stapes
from checkpoints import Sizes, random_tensors, write_checkpoint, write_shards
from stapes.models.convert import convert
from stapes.options import RuntimeOptions
from text_models import QWEN3, write_folder, write_gguf
from text_models import random_tensors as text_tensors

SIZES = Sizes(d_model=32, downsample_hidden_size=4, encoder_layers=1, tied=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "model", SIZES)


@pytest.fixture
def info(run):
    def info(*argv: object) -> dict[str, Any]:
        ran = run("info", "--json", *map(str, argv))
        assert (ran.code, ran.err) == (0, "")
        return json.loads(ran.out)

    return info


@pytest.mark.parametrize("weights", ["q8", "q4", "bf16"])
def test_a_converted_file(info, folder, tmp_path, weights):
    file = tmp_path / "x.stapes"
    convert(folder, file, RuntimeOptions(weights, threads=1))
    told = info(file)
    model = stapes.load(file, threads=1)
    assert (told["model"], told["architecture"], told["converted"]) == (
        str(file),
        "qwen3_asr",
        True,
    )
    assert told["decoder"]["weights"] == weights
    assert told["encoder"]["weights"] == ("q8" if weights == "q4" else weights)
    assert told["encoder"]["encoder_layers"] == 1
    for name in ("hidden_size", "num_hidden_layers", "head_dim", "vocab_size"):
        assert told["decoder"][name] == getattr(model.decoder.spec, name)
    assert told["parameters"] == sum(t.size for t in random_tensors(SIZES).values())
    data = file.read_bytes()
    assert told["files"] == [
        {"file": str(file), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    ]
    assert model.decoder.weights.nbytes < told["memory"]["weights_bytes"] < len(data)


@pytest.mark.parametrize("kv", ["f16", "f32"])
def test_the_cache_takes_what_is_told(info, folder, kv):
    memory = info(folder, "--kv", kv, "--no-hash")["memory"]
    cache = stapes.load(folder, kv=kv, threads=1).decoder.new_cache()
    assert memory["kv"] == kv
    assert memory["kv_bytes_per_token"] * 512 == cache.page_bytes
    assert memory["kv_bytes_per_minute_of_audio"] == 780 * memory["kv_bytes_per_token"]


@pytest.mark.parametrize("weights", ["f32", "bf16", "q8", "q4"])
def test_a_folders_memory_is_that_of_what_it_is_packed_into(info, folder, tmp_path, weights):
    convert(folder, tmp_path / "x", RuntimeOptions(weights, threads=1))
    before = info(folder, "--weights", weights, "--no-hash")
    after = info(tmp_path / "x", "--no-hash")
    told, held = (i["memory"]["weights_bytes"] for i in (before, after))
    assert abs(told - held) < 1000, "the first convolution is f32 whatever the format"
    same = ("architecture", "parameters", "encoder", "decoder")
    assert {k: before[k] for k in same} == {k: after[k] for k in same}


def test_every_shard_has_its_hash(info, folder):
    (folder / "model.safetensors").unlink()
    files = write_shards(folder, random_tensors(SIZES), 3)
    told = info(folder)["files"]
    assert [Path(entry["file"]).name for entry in told] == files
    for entry in told:
        data = Path(entry["file"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(data).hexdigest()
        assert entry["bytes"] == len(data)


def test_text_models(info, tmp_path):
    tensors = text_tensors(QWEN3)
    write_folder(tmp_path / "folder", QWEN3, tensors)
    write_gguf(tmp_path / "x.gguf", QWEN3, tensors)
    convert(tmp_path / "x.gguf", tmp_path / "x.stapes", RuntimeOptions("q8", threads=1))
    told = [info(tmp_path / name, "--no-hash") for name in ("folder", "x.gguf", "x.stapes")]
    assert [t["converted"] for t in told] == [False, False, True]
    for one in told:
        assert one["architecture"] == "qwen3"
        assert "encoder" not in one
        assert one["decoder"] == told[0]["decoder"]
        assert one["memory"]["kv_bytes_per_minute_of_audio"] is None
        assert "sha256" not in one["files"][0]


def test_lines(run, folder):
    ran = run("info", str(folder))
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"^architecture +qwen3_asr$", ran.out, re.MULTILINE)
    assert re.search(r"^converted +no$", ran.out, re.MULTILINE)
    assert re.search(r"^decoder hidden_size +64$", ran.out, re.MULTILINE)
    assert re.search(r"^parameters +\d+ \(\d+\.\d k\)$", ran.out, re.MULTILINE)
    assert re.search(r"^memory weights_bytes +\d+ \(\d+\.\d kB\)$", ran.out, re.MULTILINE)
    assert re.search(r"^sha256 +[0-9a-f]{64}$", ran.out, re.MULTILINE)
    assert "sha256" not in run("info", "--no-hash", str(folder)).out


def test_what_is_refused(run, folder, tmp_path):
    assert run("info", "absent").code == 4
    file = tmp_path / "x"
    convert(folder, file, RuntimeOptions("q8", threads=1))
    ran = run("info", str(file), "--weights", "q4")
    assert (ran.code, ran.out) == (2, "")
    os.truncate(file, file.stat().st_size - 1)
    ran = run("info", str(file))
    assert (ran.code, ran.out) == (4, "")
    assert "truncated" in ran.err
    (folder / "model.safetensors").unlink()
    assert run("info", str(folder)).code == 4
