"""Whatever the bytes, reading ends in a StapesError or in tensors that lie inside the file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stapes.errors import StapesError
from stapes.tensors import open_safetensors

HEADER = json.dumps(
    {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    }
).encode()
DATA = bytes(range(32))
VALID = len(HEADER).to_bytes(8, "little") + HEADER + DATA
LIGHT = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def read_all(path: Path) -> dict[str, bytes] | None:
    """The bytes of every tensor, or None where the file was refused."""
    try:
        with open_safetensors(path) as store:
            return {name: store[name].raw().tobytes() for name in store}
    except StapesError:
        return None


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "x.safetensors"


@LIGHT
@given(edits=st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=4))
def test_changed_bytes(path: Path, edits):
    blob = bytearray(VALID)
    for position, value in edits:
        blob[position] = value
    path.write_bytes(blob)
    tensors = read_all(path)
    assert tensors is None or b"".join(tensors.values()) == bytes(blob[-32:])
    if bytes(blob) == VALID:
        assert tensors == {"a": DATA[:24], "b": DATA[24:]}


@LIGHT
@given(start=st.integers(0, len(VALID)), end=st.integers(0, len(VALID)), new=st.binary(max_size=12))
def test_replaced_spans(path: Path, start, end, new):
    path.write_bytes(VALID[: min(start, end)] + new + VALID[max(start, end) :])
    read_all(path)


@LIGHT
@given(blob=st.binary(max_size=64))
def test_random_headers(path: Path, blob):
    path.write_bytes(len(blob).to_bytes(8, "little") + blob)
    read_all(path)


numbers = st.one_of(
    st.integers(-2, 40), st.sampled_from([2**31, 2**32, 2**63, 2**64]), st.booleans()
)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "F16", "I8", "U8", "F4", "X"]),
        "shape": st.lists(numbers, max_size=3),
        "data_offsets": st.lists(numbers, min_size=2, max_size=2),
    }
)


@LIGHT
@given(header=st.dictionaries(st.text(max_size=3), entries, max_size=3))
def test_what_is_accepted_here_is_accepted_by_the_safetensors_package(path: Path, header):
    text = json.dumps(header).encode()
    blob = len(text).to_bytes(8, "little") + text + bytes(32)
    path.write_bytes(blob)
    try:
        store = open_safetensors(path)
    except StapesError:
        return
    assert {name for name, _ in safetensors.deserialize(blob)} == set(store)
    for name in store:
        assert len(np.frombuffer(store[name].data, np.uint8)) <= 32
