"""Packing: the core writes the reference's bytes, and says no to what cannot be stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stapes import _native
from stapes.errors import CheckpointError
from stapes.graph import GraphBuilder, NativeExecutor
from stapes.weights import MatrixPacker, PackedMatrix, pack_reference
from stapes.weights.matrix import bf16_to_f32, f32_to_bf16

F32 = NDArray[np.float32]
SETS = _native.instruction_sets()
FORMATS = ["f32", "bf16", "q8", "q4"]
SHAPES = [(1, 1), (1, 32), (15, 31), (16, 32), (17, 33), (100, 7), (33, 257), (48, 64), (130, 100)]

each_set = pytest.mark.parametrize("instructions", SETS)
each_format = pytest.mark.parametrize("format", FORMATS)


def packer(format: str, instructions: str = "auto", threads: int = 2) -> MatrixPacker:
    return MatrixPacker(_native.Engine(threads, instructions), format)


def normal(*shape: int) -> F32:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def words(matrix: F32, source: str) -> tuple[NDArray[np.generic], F32]:
    """A matrix in a storage type, and the f32 values that it holds there."""
    if source == "f16":
        half = matrix.astype(np.float16)
        return half, half.astype(np.float32)
    if source == "bf16":
        return f32_to_bf16(matrix), bf16_to_f32(f32_to_bf16(matrix))
    return matrix, matrix


def assert_same(actual: PackedMatrix, expected: PackedMatrix) -> None:
    assert actual.format == expected.format
    assert (actual.out_features, actual.in_features) == (
        expected.out_features,
        expected.in_features,
    )
    np.testing.assert_array_equal(actual.data, expected.data)


@each_set
@each_format
@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packed_bytes_are_the_references(
    shape: tuple[int, int], source: str, format: str, instructions: str
) -> None:
    stored, values = words(normal(*shape), source)
    assert_same(packer(format, instructions).pack("w", stored), pack_reference(values, format))


@each_set
@each_format
def test_blocks_of_every_size_pack_like_the_reference(format: str, instructions: str) -> None:
    """Subnormal, zero and huge blocks; values on the edge between two integers."""
    sizes = np.float32([0, 1e-45, 1e-42, 1e-38, 3e-8, 6e-8, 7.5e-6, 1e-3, 1, 1e3, 4e5, 8.3e6])
    sizes = sizes[:-1] if format == "q4" else sizes  # 8.3e6 / 8 is no f16
    blocks = normal(len(sizes), 32)
    blocks /= np.abs(blocks).max(axis=1, keepdims=True)
    halves = np.arange(32, dtype=np.float32) - np.float32(15.5)
    halves[0] = 127
    matrix = np.concatenate([blocks * sizes[:, None], halves[None], -halves[None]])
    assert_same(packer(format, instructions).pack("w", matrix), pack_reference(matrix, format))


@each_set
@each_format
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [(0, 0), (16, 40), (32, 31)])
def test_what_is_not_finite_is_refused_by_name(
    where: tuple[int, int], bad: float, format: str, instructions: str
) -> None:
    for source in ("f32", "f16", "bf16"):
        stored, _ = words(normal(33, 41), source)
        stored[where] = words(np.float32([bad]), source)[0][0]
        with pytest.raises(CheckpointError, match=r"layers\.0\.w"):
            packer(format, instructions).pack("layers.0.w", stored)


@each_set
@pytest.mark.parametrize(("format", "most"), [("q8", 65519.0 * 127), ("bf16", 3.3961773e38)])
def test_what_overflows_the_format_is_refused(format: str, most: float, instructions: str) -> None:
    matrix = normal(3, 40)
    matrix[1, 3] = most
    good = packer(format, instructions).pack("w", matrix)
    assert np.isfinite(good.to_f32()).all()
    matrix[1, 3] = most * 1.001
    with pytest.raises(CheckpointError, match="too large"):
        packer(format, instructions).pack("w", matrix)


@each_set
@each_format
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unpacked_rows_are_the_references(
    shape: tuple[int, int], format: str, instructions: str
) -> None:
    packed = pack_reference(normal(*shape), format)
    engine = _native.Engine(1, instructions)
    matrix = _native.Matrix(format, *shape, packed.data)
    dense = packed.to_f32()
    for row in {0, shape[0] // 2, shape[0] - 1}:
        y = np.empty(shape[1], np.float32)
        _native.unpack_row(engine, matrix, row, y)
        np.testing.assert_array_equal(y, dense[row])


@each_format
def test_unpacking_gives_back_what_was_packed(format: str) -> None:
    matrix = normal(33, 70)
    error = np.abs(packer(format).pack("w", matrix).to_f32() - matrix)
    blocks = np.abs(np.pad(matrix, [(0, 0), (0, 26)])).reshape(33, 3, 32).max(axis=2)
    peak = np.repeat(blocks, 32, axis=1)[:, :70]
    # half a step of q8 and the rounding of its scale to f16; half a unit of bf16's 8 bits
    most = {"f32": 0 * peak, "bf16": np.abs(matrix) / 256, "q8": peak * (0.5 / 127 + 1 / 2048)}
    most["q4"] = peak * (2.4 / 8)  # values beyond the range that is left to them are cut off
    assert (error <= most[format]).all()


@each_format
@pytest.mark.parametrize("sizes", [(32, 16), (16, 17), (7, 9), (48, 16, 5), (20, 16, 3)])
def test_stacked_parts_are_one_matrix(sizes: tuple[int, ...], format: str) -> None:
    parts = [normal(size, 45) for size in sizes]
    whole = pack_reference(np.concatenate(parts), format)
    assert_same(packer(format).stack("w", parts), whole)


@each_format
def test_stacked_parts_of_different_types_are_one_matrix(format: str) -> None:
    stored = [words(normal(16, 45), source) for source in ("f32", "f16", "bf16")]
    whole = pack_reference(np.concatenate([values for _, values in stored]), format)
    assert_same(packer(format).stack("w", [part for part, _ in stored]), whole)


@each_format
def test_slices_and_transposes_pack_by_their_values(format: str) -> None:
    wide = normal(40, 90)
    for matrix in (wide[3:20, 7:60], wide.T, wide[::2, ::-1]):
        expected = pack_reference(np.ascontiguousarray(matrix), format)
        assert_same(packer(format).pack("w", matrix), expected)


@each_set
@each_format
def test_threads_pack_the_same_bytes(format: str, instructions: str) -> None:
    matrix = normal(500, 65)
    one = packer(format, instructions, threads=1).pack("w", matrix)
    assert_same(packer(format, instructions, threads=5).pack("w", matrix), one)


@each_format
def test_mapped_read_only_files_are_packed_and_used_in_place(format: str, tmp_path: Path) -> None:
    matrix, x = normal(40, 50), normal(3, 50)
    np.save(tmp_path / "matrix.npy", matrix)
    packed = packer(format).pack("w", np.load(tmp_path / "matrix.npy", mmap_mode="r"))
    packed.data.tofile(tmp_path / "packed")
    mapped = np.memmap(tmp_path / "packed", np.uint8, mode="r")
    assert not mapped.flags.writeable
    results = []
    for data in (packed.data, mapped):
        g = GraphBuilder("rows")
        weights = PackedMatrix(format, 40, 50, data)
        g.output("y", g.linear(g.input("x", "rows", 50), weights))
        executor = NativeExecutor(g.build(), _native.Engine(2))
        del g, weights
        results.append(executor.run({"x": x})["y"])
    np.testing.assert_array_equal(*results)
    assert results[0].any()


def test_every_half_word_widens_to_its_value() -> None:
    every = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    halves = every.view(np.float16)
    for stored, values in [
        (halves[np.isfinite(halves)], halves[np.isfinite(halves)].astype(np.float32)),
        (every[np.isfinite(bf16_to_f32(every))], None),
    ]:
        expected = bf16_to_f32(stored) if values is None else values
        for instructions in SETS:
            packed = packer("f32", instructions).pack("w", stored.reshape(-1, 32))
            assert packed.to_f32().reshape(-1).tobytes() == expected.tobytes()


# -- the scales of q4 ------------------------------------------------------------------------------


def weighed_error(matrix: F32, packed: F32) -> NDArray[np.float64]:
    """Of each block of 32: the error of every value, weighed by the value's square."""
    error = np.square((matrix - packed) * matrix, dtype=np.float64)
    return error.reshape(matrix.shape[0], -1, 32).sum(axis=2)


def plain_q4(matrix: F32) -> F32:
    """GGUF's own rule: the value of largest magnitude becomes -8."""
    blocks = matrix.reshape(matrix.shape[0], -1, 32)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[..., None], axis=2)
    scale = (largest / -8).astype(np.float16).astype(np.float32)
    values = np.clip(np.floor(blocks / scale + 8.5), 0, 15) - 8
    return (values * scale).reshape(matrix.shape)


def test_the_scale_of_a_q4_block_is_no_worse_than_the_plain_one() -> None:
    rng = np.random.default_rng(0)
    for matrix in (rng.normal(size=(64, 256)), rng.standard_t(2, (64, 256)), rng.random((64, 256))):
        values = matrix.astype(np.float32)
        ours = weighed_error(values, packer("q4").pack("w", values).to_f32())
        plain = weighed_error(values, plain_q4(values))
        assert (ours <= plain * 1.01 + 1e-12).all()  # both scales are rounded to f16 afterwards
        assert ours.sum() < 0.95 * plain.sum()


@pytest.mark.parametrize("scale", [1.0, -0.37, 6e-5, 900.0])
def test_values_that_q4_holds_exactly_stay_as_they_are(scale: float) -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(-8, 8, (32, 96)).astype(np.float32)
    values[:, ::32] = -8
    matrix = values * np.float32(np.float16(scale))
    np.testing.assert_array_equal(packer("q4").pack("w", matrix).to_f32(), matrix)
