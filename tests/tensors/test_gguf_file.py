"""Reading good GGUF files: what comes out is what the gguf package wrote."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize

from stapes.errors import CheckpointError, RequestError
from stapes.tensors import QuantisedTensor, Tensor
from stapes.tensors.gguf import GgufStore, open_gguf
from tensors.gguf_bytes import BF16, F16, F32, Blob, f32_blob, gguf_bytes, u32

Q8_0 = GGMLQuantizationType.Q8_0


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def opened(path: Path, data: bytes) -> GgufStore:
    path.write_bytes(data)
    return open_gguf(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.gguf"


@pytest.fixture
def written(path: Path) -> Path:
    """By the gguf package: every kind of metadata, plain and quantised tensors."""
    writer = GGUFWriter(path, "anything")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -100)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 2**32 - 1)
    writer.add_int32("a.i32", -(2**31))
    writer.add_uint64("a.u64", 2**64 - 1)
    writer.add_int64("a.i64", -(2**63))
    writer.add_float32("a.f32", 0.5)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "größer 你好")
    writer.add_array("a.texts", ["", "Ġthe", "\n"])
    writer.add_array("a.numbers", [1, -2, 3])
    writer.add_array("a.flags", [True, False])
    writer.add_tensor("vector", normal(5))
    writer.add_tensor("half", normal(3, 4).astype(np.float16))
    writer.add_tensor("blocks", quantize(normal(7, 64), Q8_0), raw_dtype=Q8_0)
    writer.add_tensor("cube", normal(2, 3, 4))
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    return path


def test_metadata_of_every_kind(written):
    with open_gguf(written) as store:
        found = {k: v for k, v in store.metadata.items() if k.startswith("a.")}
    assert found == {
        "a.u8": 200,
        "a.i8": -100,
        "a.u16": 60000,
        "a.i16": -30000,
        "a.u32": 2**32 - 1,
        "a.i32": -(2**31),
        "a.u64": 2**64 - 1,
        "a.i64": -(2**63),
        "a.f32": 0.5,
        "a.f64": 0.1,
        "a.bool": True,
        "a.text": "größer 你好",
        "a.texts": ("", "Ġthe", "\n"),
        "a.numbers": (1, -2, 3),
        "a.flags": (True, False),
    }
    assert type(found["a.bool"]) is bool
    assert store.metadata["general.architecture"] == "anything"


def test_metadata_cannot_be_changed(written):
    with open_gguf(written) as store, pytest.raises(TypeError):
        store.metadata["a.u8"] = 1  # type: ignore[index]


def test_tensors_are_those_that_were_written(written):
    with open_gguf(written) as store:
        np.testing.assert_array_equal(store["vector"].raw(), normal(5))
        np.testing.assert_array_equal(store["half"].raw(), normal(3, 4).astype(np.float16))
        np.testing.assert_array_equal(store["cube"].to_f32(), normal(2, 3, 4))
        expected = dequantize(quantize(normal(7, 64), Q8_0), Q8_0)
        np.testing.assert_array_equal(store["blocks"].to_f32(), expected)
        assert isinstance(store["half"], Tensor)
        assert isinstance(store["blocks"], QuantisedTensor)
        assert [(store[n].dtype, store[n].shape) for n in store.names()] == [
            ("F32", (5,)),
            ("F16", (3, 4)),
            ("Q8_0", (7, 64)),
            ("F32", (2, 3, 4)),
        ]


def test_places_are_those_of_the_gguf_packages_reader(written):
    theirs = {t.name: (t.data_offset, t.n_bytes) for t in gguf.GGUFReader(written).tensors}
    blob = written.read_bytes()
    with open_gguf(written) as store:
        assert set(store) == set(theirs)
        for name, (start, size) in theirs.items():
            assert bytes(store[name].data) == blob[start : start + size]


def test_it_is_a_store_like_any_other(written):
    with open_gguf(written) as store:
        assert len(store) == 4
        assert "half" in store
        assert "other" not in store
        assert store.files == (written,)
        before = store["blocks"].to_f32()
        store.release("blocks")
        np.testing.assert_array_equal(store["blocks"].to_f32(), before)
        view = store["vector"].raw()
        with pytest.raises(CheckpointError, match="no tensor 'other'"):
            store["other"]
    np.testing.assert_array_equal(view, normal(5))  # stays valid
    store.close()
    with pytest.raises(RequestError, match="closed"):
        store["vector"]


def test_words_are_views_that_cannot_be_written(written):
    with open_gguf(written) as store:
        raw = store["vector"].raw()
        assert not raw.flags.owndata
        assert not raw.flags.writeable


def test_bf16_words(path):
    words = np.array([0x3F80, 0xC000], "<u2")
    with opened(path, gguf_bytes([Blob("b", (2,), BF16, words.tobytes())])) as store:
        assert store["b"].raw().dtype == np.uint16
        np.testing.assert_array_equal(store["b"].to_f32(), [1, -2])


def test_blocks_can_be_taken_as_they_are(path):
    rng = np.random.default_rng(0)
    stored = rng.integers(0, 256, (5, 2, 34), dtype=np.uint8)
    stored[0, 0, 2:] = 0x80  # -128, which no quantiser writes
    with opened(path, gguf_bytes([Blob("q", (64, 5), 8, stored.tobytes())])) as store:
        blocks = store["q"].q8_0()
    assert blocks.shape == (5, 64)
    np.testing.assert_array_equal(blocks.values, stored[..., 2:].view(np.int8))
    np.testing.assert_array_equal(blocks.scales.view("<u2"), stored[..., :2].view("<u2")[..., 0])


def test_only_q8_0_matrices_have_such_blocks(path):
    blobs = [Blob("q4", (32, 1), 2, bytes(18)), Blob("v", (32,), 8, bytes(34))]
    with opened(path, gguf_bytes(blobs)) as store:
        for name in ("q4", "v"):
            with pytest.raises(CheckpointError, match=f"'{name}' is "):
                store[name].q8_0()


def test_large_tensors_are_dequantised_in_pieces(path):
    rows = 9000  # of 64: more than one chunk
    stored = quantize(normal(rows, 64), Q8_0)
    with opened(path, gguf_bytes([Blob("q", (64, rows), 8, stored.tobytes())])) as store:
        tensor = store["q"]
        assert tensor.row_chunk(1) < rows
        np.testing.assert_array_equal(tensor.to_f32(), dequantize(stored, Q8_0))
        np.testing.assert_array_equal(tensor.rows(17, 33), dequantize(stored[17:33], Q8_0))


@pytest.mark.parametrize("alignment", [1, 2, 8, 16, 32, 64, 4096])
@pytest.mark.parametrize("filler", range(32))
def test_every_alignment_and_size_of_metadata(path, alignment, filler):
    """Sixteen bytes each: where the alignment is not heeded, the second one comes out shifted."""
    blobs = [f32_blob(name, 4, first=10 * i) for i, name in enumerate("abc")]
    said = [u32("general.alignment", alignment)] if alignment != 32 else []
    pairs = [*said, struct.pack("<Q", filler + 1) + b"k" * (filler + 1) + b"\0\0\0\0\1"]
    with opened(path, gguf_bytes(blobs, pairs, alignment=alignment)) as store:
        for i, name in enumerate("abc"):
            np.testing.assert_array_equal(store[name].to_f32(), np.arange(4) + 10 * i)


@pytest.mark.parametrize("dims", [(), (1,), (3, 1, 2), (2, 2, 2, 2), (0,), (4, 0)])
def test_shapes_are_reversed(path, dims):
    count = int(np.prod(dims))
    with opened(path, gguf_bytes([Blob("t", dims, F32, bytes(4 * count))])) as store:
        assert store["t"].raw().shape == dims[::-1]


def test_quantised_tensors_without_values(path):
    with opened(path, gguf_bytes([Blob("t", (32, 0), 8, b"")])) as store:
        assert store["t"].to_f32().shape == (0, 32)


def test_padding_behind_the_last_tensor_may_be_absent(path):
    with opened(path, gguf_bytes([f32_blob("a", 3)], padded=False)) as store:
        np.testing.assert_array_equal(store["a"].raw(), [0, 1, 2])


def test_a_file_with_metadata_alone(path):
    with opened(path, gguf_bytes([], [u32("n", 7)])) as store:
        assert (dict(store.metadata), store.names()) == ({"n": 7}, ())


def test_tensors_may_be_described_in_any_order(path):
    a, b = f32_blob("a", 8), f32_blob("b", 8, first=9)
    blobs = [Blob("b", b.dims, F32, a.data, 32), Blob("a", a.dims, F32, b.data, 0)]
    with opened(path, gguf_bytes(blobs)) as store:
        assert store.names() == ("a", "b")
        np.testing.assert_array_equal(store["b"].raw(), np.arange(8) + 9)


def test_half_words_at_odd_places_are_read(path):
    blobs = [Blob("a", (1,), F16, b"\0\0"), Blob("b", (2,), F16, b"\0\x3c\0\xc0")]
    said = [u32("general.alignment", 1), struct.pack("<Q", 1) + b"k\0\0\0\0\1"]
    with opened(path, gguf_bytes(blobs, said, alignment=1)) as store:
        np.testing.assert_array_equal(store["b"].to_f32(), [1, -2])
