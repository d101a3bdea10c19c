"""Whatever the bytes, reading a GGUF file ends in a StapesError or in tensors inside the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stapes.errors import StapesError
from stapes.tensors.gguf import open_gguf
from tensors.gguf_bytes import TEXT, U8, Blob, array, f32_blob, gguf_bytes, pair, text, u32

BLOBS = [
    f32_blob("a", 4),
    Blob("b.weight", (32, 2), 8, bytes(range(68))),
    Blob("c", (3,), 1, b"\0\x3c\0\x3d\0\x3e"),
]
PAIRS = [
    u32("general.alignment", 16),
    pair("name", TEXT, text("größer")),
    array("tokens", TEXT, 3, text("a") + text("") + text("bc")),
    array("types", U8, 3, b"\1\1\3"),
]
VALID = gguf_bytes(BLOBS, PAIRS, alignment=16)
HEADER = len(VALID) - 16 - 80 - 16
LIGHT = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


def read_all(path: Path) -> dict[str, bytes] | None:
    """The bytes of every tensor, or None where the file was refused."""
    try:
        with open_gguf(path) as store:
            for name in store:
                assert store[name].to_f32().shape == store[name].shape
            return {name: bytes(store[name].data) for name in store}
    except StapesError:
        return None


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "x.gguf"


def test_the_file_is_good(path):
    path.write_bytes(VALID)
    assert read_all(path) == {b.name: b.data for b in BLOBS}


@LIGHT
@given(
    edits=st.lists(
        st.tuples(st.integers(0, HEADER - 1), st.integers(0, 255)), min_size=1, max_size=4
    )
)
def test_changed_bytes_of_the_header(path: Path, edits):
    blob = bytearray(VALID)
    for position, value in edits:
        blob[position] = value
    path.write_bytes(blob)
    tensors = read_all(path)
    assert tensors is None or all(data in VALID for data in tensors.values())


@LIGHT
@given(position=st.integers(HEADER, len(VALID) - 1), value=st.integers(0, 255))
def test_changed_bytes_of_the_data_are_read(path: Path, position, value):
    blob = bytearray(VALID)
    blob[position] = value
    path.write_bytes(blob)
    assert read_all(path) is not None


@LIGHT
@given(
    position=st.integers(4, HEADER - 8),
    number=st.sampled_from([0, 1, 5, 2**16, 2**31, 2**32 - 1, 2**32, 2**61, 2**63, 2**64 - 1]),
    size=st.sampled_from([4, 8]),
)
def test_absurd_numbers_anywhere(path: Path, position, number, size):
    blob = bytearray(VALID)
    blob[position : position + size] = (number % 256**size).to_bytes(size, "little")
    path.write_bytes(blob)
    read_all(path)


@LIGHT
@given(start=st.integers(0, len(VALID)), end=st.integers(0, len(VALID)), new=st.binary(max_size=12))
def test_replaced_spans(path: Path, start, end, new):
    path.write_bytes(VALID[: min(start, end)] + new + VALID[max(start, end) :])
    read_all(path)


@LIGHT
@given(blob=st.binary(max_size=80))
def test_random_bytes_behind_the_magic(path: Path, blob):
    path.write_bytes(b"GGUF\3\0\0\0" + blob)
    read_all(path)


@LIGHT
@given(scale=st.integers(0, 0xFFFF))
def test_any_scale_is_read_without_a_warning(path: Path, scale):
    block = np.uint16(scale).tobytes() + bytes(range(96, 128)) * 2
    for kind, size in ((8, 34), (2, 18), (6, 22)):
        path.write_bytes(gguf_bytes([Blob("t", (32, 1), kind, block[:size])]))
        assert read_all(path) is not None
