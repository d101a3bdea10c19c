from __future__ import annotations

import pytest

from stapes.errors import CheckpointError
from stapes.tensors import check_tensors, open_safetensors

EXPECTED = {"a": (2, 3), "b": (4,), "c": (2, 2), "d": ()}


@pytest.fixture
def store(write, small_header):
    return open_safetensors(write(small_header))


def test_a_checkpoint_that_fits(store):
    check_tensors(store, EXPECTED)


def test_all_lists_are_full(store):
    expected = {"a": (3, 2), "b": (5,), "x": (1,), "y": (1,)}
    with pytest.raises(CheckpointError) as caught:
        check_tensors(store, expected)
    message = str(caught.value)
    assert "2 missing: x, y" in message
    assert "2 unexpected: c, d" in message
    assert "a (expected [3, 2], found [2, 3])" in message
    assert "b (expected [5], found [4])" in message


def test_ignored_by_collection_or_test(store):
    expected = {"a": (2, 3), "b": (4,)}
    check_tensors(store, expected, ignored={"c", "d"})
    check_tensors(store, expected, ignored=lambda name: name in "cd")
    with pytest.raises(CheckpointError, match="1 unexpected: d"):
        check_tensors(store, expected, ignored=("c",))


def test_an_expected_name_is_never_ignored(store):
    with pytest.raises(CheckpointError, match="1 missing: x"):
        check_tensors(store, EXPECTED | {"x": (1,)}, ignored={"x"})
