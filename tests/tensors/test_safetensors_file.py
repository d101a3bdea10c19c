from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from stapes.errors import CheckpointError, RequestError, TensorFileError
from stapes.tensors import open_safetensors


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_reads_what_the_safetensors_package_writes(tmp_path: Path):
    rng = np.random.default_rng(0)
    tensors = {
        "x": rng.standard_normal((3, 5)).astype(np.float32),
        "y": rng.standard_normal(7).astype(np.float16),
        "empty": np.zeros((0, 4), dtype=np.float32),
        "scalar": np.array(3.0, dtype=np.float32),
    }
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(tensors, path, metadata={"format": "np"})
    with open_safetensors(tmp_path) as store:
        assert set(store) == set(tensors)
        assert len(store) == 4
        assert store.files == (path,)
        assert store.metadata == {"format": "np"}
        for name, value in tensors.items():
            assert store[name].shape == value.shape
            np.testing.assert_array_equal(store[name].raw(), value)


def test_the_package_reads_the_files_of_these_tests(write, small_header):
    path = write(small_header)
    theirs = dict(safetensors.deserialize(path.read_bytes()))
    store = open_safetensors(path)
    assert set(theirs) == set(store.names())
    for name, value in theirs.items():
        assert bytes(store[name].data) == bytes(value["data"])


def test_names_come_in_the_order_of_their_bytes(write):
    header = {"z": entry(offsets=(8, 16)), "a": entry(offsets=(16, 24)), "m": entry(offsets=(0, 8))}
    assert open_safetensors(write(header)).names() == ("m", "z", "a")


@pytest.mark.parametrize("length", [99_993, 99_994, 100_000, 300_001])
def test_padded_headers_of_any_length(write, small_header, length):
    path = write(small_header, bytes(range(44)), pad_to=length)
    assert path.stat().st_size == 8 + length + 44
    store = open_safetensors(path)
    assert bytes(store["a"].data) == bytes(range(24))
    assert store["a"].raw().flags.aligned  # copied when the header's length misaligns it


def test_metadata_alone_is_a_file_without_tensors(write):
    store = open_safetensors(write({"__metadata__": {"k": "v"}}))
    assert len(store) == 0
    assert store.metadata == {"k": "v"}


@pytest.mark.parametrize("cut", [0.25, 0.5, 0.99, "one byte", "all"])
def test_truncated_files_are_refused(write, cut):
    path = write({"w": entry(shape=(64, 64), offsets=(0, 16384))})
    whole = path.read_bytes()
    keep = {"one byte": len(whole) - 1, "all": 0}.get(cut) if isinstance(cut, str) else None
    path.write_bytes(whole[: int(len(whole) * cut) if keep is None else keep])
    with pytest.raises(TensorFileError, match=r"truncated|has 0 bytes"):
        open_safetensors(path)


def test_every_truncation_is_refused(write, small_header):
    path = write(small_header)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(TensorFileError):
            open_safetensors(path)


def test_an_absurd_header_length_names_the_numbers(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    path.write_bytes((2**40).to_bytes(8, "little") + b"{}")
    with pytest.raises(TensorFileError, match=r"1099511627776.*only 2 "):
        open_safetensors(path)


def test_bytes_behind_the_tensors_are_refused(write):
    with pytest.raises(TensorFileError, match=r"take 8 bytes, but 9"):
        open_safetensors(write({"w": entry()}, bytes(9)))


GOOD = json.dumps(entry())
DEEP = '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"

BAD_HEADERS = {
    "not json": "{nonsense",
    "no object": "[1, 2]",
    "text": '"abc"',
    "leading space": ' {"a": 1}',
    "not utf-8": b'{"\xff\xfe": 1}',
    "empty": "",
    "two keys": f'{{"a": {GOOD}, "a": {GOOD}}}',
    "two inner keys": f'{{"a": {GOOD[:-1]}, "shape": [2]}}}}',
    "deep": DEEP,
    "long integer": '{"a": {"dtype": "F32", "shape": [%s], "data_offsets": [0, 8]}}' % ("9" * 5000),
    "nan": '{"a": NaN}',
    "surrogate": f'{{"\\ud800": {GOOD}}}',
    "trailing": f'{{"a": {GOOD}}} x',
    "metadata list": '{"__metadata__": []}',
    "metadata number": '{"__metadata__": {"a": 1}}',
}


@pytest.mark.parametrize("kind", BAD_HEADERS)
def test_bad_headers(write, kind):
    path = write(BAD_HEADERS[kind], bytes(8))
    with pytest.raises(TensorFileError, match=r"model\.safetensors"):
        open_safetensors(path)


BAD_ENTRIES: dict[str, Any] = {
    "number": 3,
    "no shape": {"dtype": "F32", "data_offsets": [0, 8]},
    "surplus key": {**entry(), "stride": [1]},
    "dtype unknown": entry(dtype="Q8_0"),
    "dtype number": entry(dtype=4),
    "dtype list": entry(dtype=["F32"]),
    "shape negative": entry(shape=[-2]),
    "shape float": entry(shape=[2.0]),
    "shape bool": entry(shape=[True, 2]),
    "shape text": entry(shape=["2"]),
    "shape number": {**entry(), "shape": 2},
    "shape too deep": entry(shape=[1] * 65 + [2]),
    "shape wraps to the size": entry(shape=[2**32, 2**32, 2]),
    "shape too large for any index": entry(shape=[0, 2**62, 2**62], offsets=(0, 0)),
    "offsets reversed": entry(offsets=[8, 0]),
    "offsets negative": entry(offsets=[-8, 0]),
    "offsets float": entry(offsets=[0, 8.0]),
    "offsets three": entry(offsets=[0, 4, 8]),
    "size too small": entry(shape=[1]),
    "size too large": entry(shape=[3]),
    "past the end": entry(shape=[4], offsets=(0, 16)),
    "far past the end": entry(shape=[2], offsets=(2**63, 2**63 + 8)),
    "half bytes": entry(dtype="F4", shape=[3], offsets=(0, 1)),
}


@pytest.mark.parametrize("kind", BAD_ENTRIES)
def test_bad_entries(write, kind):
    with pytest.raises(TensorFileError, match=r"model\.safetensors"):
        open_safetensors(write({"w": BAD_ENTRIES[kind]}, bytes(8)))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ((12, 20), "hole.*byte 12.*where 8"),
        ((4, 12), "overlaps.*byte 4.*where 8"),
        ((0, 8), "overlaps"),
    ],
)
def test_holes_and_overlaps(write, second, message):
    header = {"a": entry(), "b": entry(offsets=second)}
    with pytest.raises(TensorFileError, match=message):
        open_safetensors(write(header, bytes(second[1])))


def test_a_hole_in_front(write):
    with pytest.raises(TensorFileError, match="hole"):
        open_safetensors(write({"a": entry(offsets=(4, 12))}, bytes(12)))


def test_unread_dtypes_open_but_do_not_read(write):
    header = {"ids": entry(dtype="I64", shape=[1]), "w": entry(offsets=(8, 16))}
    store = open_safetensors(write(header))
    with pytest.raises(CheckpointError, match=r"'ids'.*I64"):
        store["ids"].to_f32()
    assert store["w"].to_f32().shape == (2,)


def test_a_path_that_is_not_there(tmp_path: Path):
    with pytest.raises(TensorFileError, match="nowhere does not exist"):
        open_safetensors(tmp_path / "nowhere")


def test_a_folder_without_weights_says_what_was_looked_for(tmp_path: Path):
    with pytest.raises(TensorFileError, match=r"neither model\.safetensors nor .*index\.json"):
        open_safetensors(tmp_path)


def test_a_folder_in_place_of_the_file(tmp_path: Path):
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(TensorFileError, match="cannot be read"):
        open_safetensors(tmp_path)


def test_unicode_paths(write, tmp_path: Path):
    folder = tmp_path / "größe 模型 🎙 -x"
    folder.mkdir()
    write({"w": entry()}).rename(folder / "model.safetensors")
    assert "w" in open_safetensors(str(folder))


def test_unknown_names(write, small_header):
    store = open_safetensors(write(small_header))
    assert "nope" not in store
    assert 3 not in store
    with pytest.raises(CheckpointError, match="no tensor 'nope'"):
        store["nope"]
    with pytest.raises(CheckpointError):
        store.release("nope")


def test_arrays_outlive_the_store(write, small_header):
    path = write(small_header)
    with open_safetensors(path) as store:
        array = store["a"].to_f32()
        expected = array.copy()
    store.close()
    del store
    gc.collect()
    np.testing.assert_array_equal(array, expected)


def test_a_closed_store_says_so(write, small_header):
    store = open_safetensors(write(small_header))
    store.close()
    with pytest.raises(RequestError, match="closed"):
        store["a"]


def test_release_changes_no_value(write, small_header):
    store = open_safetensors(write(small_header))
    before = {name: bytes(store[name].data) for name in store}
    for name in store:
        store.release(name)
    assert {name: bytes(store[name].data) for name in store} == before


def resident_file_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssFile:"):
            return int(line.split()[1])
    pytest.skip("the system does not report RssFile")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_release_gives_memory_back(write):
    size = 16 * 2**20
    path = write({"w": entry(shape=(size // 4,), offsets=(0, size))}, bytes(size))
    store = open_safetensors(path)
    start = resident_file_kib()
    assert store["w"].to_f32().sum() == 0
    held = resident_file_kib() - start
    store.release("w")
    left = resident_file_kib() - start
    assert held > 14 * 1024
    assert left < 2 * 1024
