"""Caches, matrices and engines that cannot be: an exception, never the end of the process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stapes import _native

REFUSALS = (ValueError, TypeError, IndexError, MemoryError)


@pytest.fixture(scope="module")
def engine() -> _native.Engine:
    return _native.Engine(2)


@pytest.mark.parametrize(
    "arguments",
    [(0, 1, 8, "f16"), (1, 0, 8, "f16"), (1, 1, 0, "f16"), (1, 1, 8, "q8"), (1, 1, 8, ""),
     (-1, 1, 8, "f16"), (1, 1, 10**6, "f16"), (1, 1, 2**64, "f16"), (None, 1, 8, "f16")],
)  # fmt: skip
def test_a_bad_cache_is_refused(arguments: Any) -> None:
    with pytest.raises(REFUSALS):
        _native.KvCache(*arguments)


@pytest.mark.parametrize("positions", [2**30, 2**31, 2**40, 2**63, 2**64 - 1, 2**64, -1, None])
def test_a_reservation_that_cannot_be_is_refused_at_once(positions: Any) -> None:
    cache = _native.KvCache(28, 8, 128, "f16")
    with pytest.raises(REFUSALS):
        cache.reserve(positions)
    assert cache.capacity == 0


def test_a_page_that_cannot_be_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        _native.KvCache(4096, 4096, 4096, "f32").reserve(1)


@pytest.mark.parametrize("length", [1, 2**63, -1, None])
def test_truncating_beyond_the_length_is_refused(length: Any) -> None:
    with pytest.raises(REFUSALS):
        _native.KvCache(1, 1, 8, "f16").truncate(length)


@pytest.mark.parametrize(
    "arguments",
    [("f32", 16, 8, 511), ("q8", 16, 32, 543), ("q9", 16, 8, 512), ("f32", 0, 8, 0),
     ("f32", 2**63, 2**63, 0), ("f32", 2**31, 1, 0), ("f32", -1, 8, 512), ("bf16", 16, 8, 512)],
)  # fmt: skip
def test_a_bad_matrix_is_refused(arguments: Any) -> None:
    format, out, in_, size = arguments
    with pytest.raises(REFUSALS):
        _native.Matrix(format, out, in_, np.zeros(size, np.uint8))


def test_unaligned_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="aligned"):
        _native.Matrix("f32", 16, 8, np.zeros(513, np.uint8)[1:])


def test_bad_rows_to_unpack_are_refused(engine: _native.Engine) -> None:
    matrix = _native.Matrix("f32", 16, 8, np.zeros(512, np.uint8))
    y = np.zeros(8, np.float32)
    _native.unpack_row(engine, matrix, 15, y)
    for row, out in [(16, y), (2**63, y), (-1, y), (0, y[:7]), (0, np.zeros(16, np.float32)[::2])]:
        with pytest.raises(REFUSALS):
            _native.unpack_row(engine, matrix, row, out)


def test_packing_into_what_cannot_take_it_is_refused(engine: _native.Engine) -> None:
    source = np.ones((16, 8), np.float32).view(np.uint8).reshape(-1)
    good = np.zeros(512, np.uint8)
    assert _native.pack(engine, "f32", "f32", 16, 8, source, good)
    assert good.any()
    frozen = np.zeros(512, np.uint8)
    frozen.flags.writeable = False
    wrong = [frozen, np.zeros(511, np.uint8), np.zeros(1024, np.uint8)[::2], np.zeros(512, np.int8),
             np.zeros(513, np.uint8)[1:], None]  # fmt: skip
    for packed in wrong:
        with pytest.raises(REFUSALS):
            _native.pack(engine, "f32", "f32", 16, 8, source, packed)  # type: ignore[arg-type]
    for out, in_, words in [(0, 8, "f32"), (17, 8, "f32"), (2**60, 2**60, "f32"), (16, 8, "f16")]:
        with pytest.raises(REFUSALS):
            _native.pack(engine, "f32", words, out, in_, source, good)


@pytest.mark.parametrize("threads", [0, -1, 1025, 2**31, 2**40, None, 1.5])
def test_a_bad_thread_count_is_refused(threads: Any) -> None:
    with pytest.raises(REFUSALS):
        _native.Engine(threads)


@pytest.mark.parametrize("name", ["avx9", "", "AVX2", None])
def test_an_unknown_instruction_set_is_refused(name: Any) -> None:
    with pytest.raises(REFUSALS):
        _native.Engine(1, name)


@pytest.mark.parametrize("bits", [0, 8, 12, 16, -9, 2**40, None, 9.5])
def test_activation_bits_that_no_kernel_has_are_refused(bits: Any) -> None:
    with pytest.raises(REFUSALS):
        _native.Plan(["rows"], [("x", "f32", 0, 1, -1)], [], [], [], bits)
