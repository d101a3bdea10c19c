"""Readers: of a checkpoint, recording, and of a converted file; all give the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from decoder.tiny import Source, engine
from stapes.errors import CheckpointError
from stapes.weights import CheckpointReader, MatrixPacker, pack_reference
from stapes.weights.packed_file import Contents, PackedReader, open_packed, write_packed
from stapes.weights.reader import Record, RecordingReader

SHAPES = {"a": (32, 40), "b": (16, 40), "c": (8, 5, 3, 3), "v": (7,), "w": (3,), "one": (20, 9)}
FORMATS = ("f32", "bf16", "q8", "q4")


def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(s).astype(np.float32) for name, s in SHAPES.items()}


def flipped(words: np.ndarray) -> np.ndarray:
    return words.transpose(0, 3, 2, 1).reshape(len(words), -1)


def read_all(reader) -> dict[str, object]:
    """What a model's load code might ask for."""
    return {
        "ab": reader.matrix("a", "b"),
        "c": reader.matrix("c", arrange=flipped),
        "one": reader.matrix("one", exact=True),
        "vw": reader.vector("v", "w"),
    }


def reader(format: str, source: Source | None = None) -> CheckpointReader:
    return CheckpointReader(source or Source(tensors()), MatrixPacker(engine(), format))


def recorded(format: str) -> tuple[dict[str, object], Record]:
    record = Record()
    return read_all(RecordingReader(reader(format), record)), record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.stapes"


@pytest.mark.parametrize("format", FORMATS)
def test_a_checkpoint_is_packed_as_it_is_asked_for(format: str):
    given, source = tensors(), Source(tensors())
    read = read_all(reader(format, source))
    stacked = np.concatenate([given["a"], given["b"]])
    for key, matrix, kind in (
        ("ab", stacked, format),
        ("c", flipped(given["c"]), format),
        ("one", given["one"], "f32"),
    ):
        assert read[key].format == kind
        assert np.array_equal(read[key].data, pack_reference(matrix, kind).data)
    assert np.array_equal(read["vw"], np.concatenate([given["v"], given["w"]]))
    assert source.released == {"a", "b", "c", "one"}


def test_a_record_keeps_what_it_handed_on():
    read, record = recorded("q8")
    assert record.matrices == {"a + b": read["ab"], "c": read["c"], "one": read["one"]}
    assert record.vectors["v + w"] is read["vw"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_gives_the_same_without_a_copy(path: Path, format: str):
    read, record = recorded(format)
    write_packed(path, Contents(record.matrices, record.vectors))
    file = open_packed(path)
    again = read_all(PackedReader(file, SHAPES))
    for key in ("ab", "c", "one"):
        assert (again[key].format, again[key].out_features) == (
            read[key].format,
            read[key].out_features,
        )
        assert np.array_equal(again[key].data, read[key].data)
        assert not again[key].data.flags.owndata
        assert not again[key].data.flags.writeable
        assert again[key].data.ctypes.data % 32 == 0
        assert np.shares_memory(again[key].data, file.matrices[{"ab": "a + b"}.get(key, key)].data)
    assert np.array_equal(again["vw"], read["vw"])
    file.close()
    assert np.array_equal(again["ab"].data, read["ab"].data), "views outlive the file object"


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({**SHAPES, "z": (4, 4), "y": (2,)}, "2 missing: y, z"),
        ({n: s for n, s in SHAPES.items() if n != "c"}, "1 unexpected: c"),
        ({n: s for n, s in SHAPES.items() if n != "a"}, r"1 unexpected: a \+ b"),
        ({**SHAPES, "a": (48, 40)}, r"a \+ b \(expected \[64, 40\], found \[48, 40\]\)"),
        ({**SHAPES, "one": (20, 10)}, "mis-shaped: one"),
        ({**SHAPES, "v": (8,)}, r"mis-shaped: v \+ w"),
    ],
)
def test_what_does_not_fit_the_model_is_listed(path: Path, expected, message: str):
    _, record = recorded("q8")
    write_packed(path, Contents(record.matrices, record.vectors))
    with pytest.raises(CheckpointError, match=message):
        PackedReader(open_packed(path), expected)


def test_what_was_read_in_other_company_is_not_there(path: Path):
    _, record = recorded("q8")
    write_packed(path, Contents(record.matrices, record.vectors))
    packed = PackedReader(open_packed(path), SHAPES)
    with pytest.raises(CheckpointError, match="no matrix 'a'"):
        packed.matrix("a")


def test_a_vector_that_is_not_finite(path: Path):
    _, record = recorded("q8")
    record.vectors["v + w"][3] = np.nan
    write_packed(path, Contents(record.matrices, record.vectors))
    with pytest.raises(CheckpointError, match="not finite"):
        PackedReader(open_packed(path), SHAPES).vector("v", "w")
