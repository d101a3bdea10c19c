"""The converted file as a file: its layout, how it is written, and damage."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from stapes.errors import CapacityError, RequestError, StapesError, TensorFileError
from stapes.weights import atomic, pack_reference
from stapes.weights.packed_file import Contents, open_packed, write_packed

MATRIX = pack_reference(np.linspace(-1, 1, 20 * 40, dtype=np.float32).reshape(20, 40), "q8")
CONTENTS = Contents(
    matrices={"m": MATRIX, "n + o": pack_reference(np.eye(3, dtype=np.float32), "q4")},
    vectors={"v": np.arange(3, dtype=np.float32)},
    arrays={
        "bytes": np.arange(5, dtype=np.uint8),
        "none": np.zeros(0, np.int32),
        "long": np.arange(4, dtype=np.int64),
    },
    texts={"note": "größe 🦉", "other": '{"a": 1}'},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "模型 🦉.stapes"


def header(data: bytes) -> tuple[dict[str, Any], int]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), 8 + size


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Writes the file anew with another header."""
    data = path.read_bytes()
    fields, start = header(data)
    change(fields)
    text = json.dumps(fields).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[start:])


def test_the_layout(path: Path):
    write_packed(path, CONTENTS)
    fields, start = header(path.read_bytes())
    assert start % 64 == 0
    assert list(fields) == ["__metadata__", "m", "n + o", "long", "v", "none", "bytes"]
    for name, size in (("m", 32), ("n + o", 32), ("long", 8), ("v", 4), ("none", 4)):
        assert fields[name]["data_offsets"][0] % size == 0
    kept = fields["__metadata__"]
    assert (kept["format"], kept["version"], kept["note"]) == ("stapes", "1", "größe 🦉")
    assert json.loads(kept["matrices"]) == {"m": ["q8", 20, 40], "n + o": ["q4", 3, 3]}


def test_what_is_read_is_what_was_written(path: Path):
    write_packed(path, CONTENTS)
    file = open_packed(path)
    assert file.texts == CONTENTS.texts
    for name, array in {**CONTENTS.vectors, **CONTENTS.arrays}.items():
        assert np.array_equal(file.array(name), array)
        assert file.array(name).dtype == array.dtype
    assert file.matrices["m"].data.tobytes() == MATRIX.data.tobytes()


def test_the_safetensors_package_reads_it(path: Path):
    write_packed(path, CONTENTS)
    with safe_open(path, "numpy") as file:
        assert set(file.keys()) == {"m", "n + o", "v", "bytes", "none", "long"}
        assert np.array_equal(file.get_tensor("m"), MATRIX.data)
        assert file.metadata()["other"] == '{"a": 1}'


def test_other_safetensors_files_are_none_of_ours(path: Path):
    write_packed(path, CONTENTS)
    edited(path, lambda fields: fields["__metadata__"].update(format="pt"))
    assert open_packed(path) is None
    edited(path, lambda fields: fields.pop("__metadata__"))
    assert open_packed(path) is None


# -- damage --------------------------------------------------------------------------------------


def table(**entries: Any) -> Callable[[dict[str, Any]], None]:
    """Changes the table of matrices; None takes an entry away."""

    def change(fields: dict[str, Any]) -> None:
        found = {**json.loads(fields["__metadata__"]["matrices"]), **entries}
        found = {k: v for k, v in found.items() if v is not None}
        fields["__metadata__"]["matrices"] = json.dumps(found)

    return change


def text(**values: str) -> Callable[[dict[str, Any]], None]:
    return lambda fields: fields["__metadata__"].update(values)


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "another version": (text(version="2"), "version '2' .* reads '1'"),
    "no version": (lambda f: f["__metadata__"].pop("version"), "version None"),
    "no table": (lambda f: f["__metadata__"].pop("matrices"), "not valid JSON"),
    "a table that is no JSON": (text(matrices="{"), "not valid JSON"),
    "a table that is a list": (text(matrices="[]"), "no object"),
    "an unknown format": (table(m=["q3", 20, 40]), "describes as"),
    "a negative size": (table(m=["q8", -20, 40]), "describes as"),
    "a size that is true": (table(m=["q8", True, 40]), "describes as"),
    "a huge size": (table(m=["q8", 2**31 - 1, 2**31 - 1]), "cannot be|takes"),
    "too few outputs": (table(m=["q8", 16, 40]), "2176 bytes .* takes 1088"),
    "another format": (table(m=["bf16", 20, 40]), "takes"),
    "a matrix that is not there": (table(z=["q8", 20, 40]), "'z'"),
    "a vector as matrix": (table(v=["f32", 1, 1]), "takes"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_header(path: Path, kind: str):
    change, message = DAMAGE[kind]
    write_packed(path, CONTENTS)
    edited(path, change)
    with pytest.raises(TensorFileError, match=message) as refused:
        open_packed(path)
    assert str(path) in str(refused.value)


def test_arrays_that_are_asked_for_and_are_none(path: Path):
    write_packed(path, CONTENTS)
    edited(path, lambda f: f["v"].update(shape=[1, 3]))
    file = open_packed(path)
    for name in ("v", "absent"):
        with pytest.raises(TensorFileError, match=name):
            file.array(name)


def test_a_file_that_is_cut(path: Path):
    write_packed(path, CONTENTS)
    data = path.read_bytes()
    for size in [*range(0, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(TensorFileError):
            open_packed(path)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
def test_any_byte_may_be_wrong(tmp_path_factory, place: int, value: int):
    path = tmp_path_factory.getbasetemp() / "fuzz.stapes"
    write_packed(path, CONTENTS)
    data = bytearray(path.read_bytes())
    data[place % len(data)] = value
    path.write_bytes(data)
    try:
        file = open_packed(path)
        if file is None:
            return
        for name in file.names():
            file.array(name).sum()
        for matrix in file.matrices.values():
            matrix.to_f32()
    except StapesError:
        pass


# -- writing -------------------------------------------------------------------------------------


def test_a_full_disk_is_found_out_beforehand(path: Path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=7))
    with pytest.raises(CapacityError, match=r"takes \d{4} bytes, but the disk has 7 left"):
        write_packed(path, CONTENTS)
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left"), CapacityError, r"takes \d+ bytes.*full \(\d+"),
        (OSError(errno.EIO, "Input/output error"), RequestError, "Input/output error"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (MemoryError(), MemoryError, None),
    ],
)
@pytest.mark.parametrize("old", [None, b"old"])
def test_nothing_half_made_remains(path: Path, monkeypatch, failure, error, message, old):
    if old:
        path.write_bytes(old)

    def fail(descriptor: int) -> None:
        raise failure

    monkeypatch.setattr(atomic.os, "fsync", fail)
    with pytest.raises(error, match=message):
        write_packed(path, CONTENTS)
    assert os.listdir(path.parent) == ([path.name] if old else [])
    assert old is None or path.read_bytes() == old


def test_a_file_is_replaced_while_its_old_content_is_in_use(path: Path):
    write_packed(path, CONTENTS)
    before = open_packed(path).matrices["m"]
    write_packed(path, Contents({}, {}))
    assert before.data.tobytes() == MATRIX.data.tobytes()
    assert open_packed(path).names() == ()


def test_a_folder_that_is_not_there(tmp_path: Path):
    with pytest.raises((RequestError, CapacityError), match="cannot be written"):
        write_packed(tmp_path / "absent" / "x", CONTENTS)
