"""Quantised rows of a GGUF file, packed: Q8_0 keeps its numbers, the rest goes by its values."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from stapes import _native
from stapes.errors import CheckpointError
from stapes.graph import GraphBuilder, NativeExecutor, ReferenceExecutor
from stapes.tensors import QuantisedTensor
from stapes.tensors.quantised import Q8Blocks
from stapes.weights import MatrixPacker, PackedMatrix, pack_reference
from stapes.weights.q8_blocks import read_q8_tiles, write_q8_tiles

SHAPES = [(1, 32), (15, 64), (16, 32), (17, 96), (48, 32), (130, 160)]
FORMATS = ["f32", "bf16", "q8", "q4"]
EVERY_INTEGER = np.arange(-128, 128, dtype=np.int8)


def packer(format: str = "q8") -> MatrixPacker:
    return MatrixPacker(_native.Engine(2), format)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def tensor(stored: np.ndarray, kind: str, in_features: int, name: str = "t") -> QuantisedTensor:
    return QuantisedTensor(name, kind, (len(stored), in_features), memoryview(stored.tobytes()))


def quantised(matrix: np.ndarray, kind: str = "Q8_0") -> QuantisedTensor:
    return tensor(quantize(matrix, GGMLQuantizationType[kind]), kind, matrix.shape[1])


def wild(out: int, in_features: int) -> np.ndarray:
    """Q8_0 rows [out, bytes] that no quantiser writes: every integer, every finite scale's size."""
    rng = np.random.default_rng(out)
    blocks = rng.integers(0, 256, (out, in_features // 32, 34), dtype=np.uint8)
    signs = rng.choice(np.float32([-1, 1]), blocks.shape[:2])
    scales = (signs * 2.0 ** rng.uniform(-26, 15.9, blocks.shape[:2])).astype(np.float16)
    scales.flat[:: max(1, scales.size // 5)] = 0
    blocks[..., :2] = scales[..., None].view(np.uint8)
    blocks.reshape(-1, 34)[0, 2:] = EVERY_INTEGER[:32].view(np.uint8)
    return blocks.reshape(out, -1)


def values_of(stored: np.ndarray) -> np.ndarray:
    return dequantize(stored, GGMLQuantizationType.Q8_0)


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_q8_0_keeps_its_numbers_bit_for_bit(shape: tuple[int, int]) -> None:
    stored = wild(*shape)
    packed = packer().pack("t", tensor(stored, "Q8_0", shape[1]))
    assert (packed.format, packed.out_features, packed.in_features) == ("q8", *shape)
    assert_same_bits(packed.to_f32(), values_of(stored))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocks_of_a_quantiser_pack_to_the_same_bytes_as_its_input(shape: tuple[int, int]) -> None:
    matrix = normal(*shape)
    packed = packer().pack("t", quantised(matrix))
    np.testing.assert_array_equal(packed.data, pack_reference(matrix, "q8").data)


def test_every_integer_survives_the_core() -> None:
    """-128 too: unpacked rows, and products, of both executors."""
    stored = np.zeros((17, 8, 34), np.uint8)
    stored[..., :2] = np.float16([0.5]).view(np.uint8)
    stored[..., 2:] = EVERY_INTEGER.view(np.uint8).reshape(8, 32)
    stored = stored.reshape(17, -1)
    packed = packer().pack("t", tensor(stored, "Q8_0", 256))
    matrix = _native.Matrix("q8", 17, 256, packed.data)
    row = np.empty(256, np.float32)
    _native.unpack_row(_native.Engine(1), matrix, 16, row)
    assert_same_bits(row, EVERY_INTEGER.astype(np.float32) * np.float32(0.5))
    x = np.full((3, 256), -127, np.float32)
    results = [run(packed, x, native) for native in (True, False)]
    np.testing.assert_array_equal(results[0], np.full((3, 17), -127 * -64, np.float32))
    np.testing.assert_array_equal(*results)


def run(packed: PackedMatrix, x: np.ndarray, native: bool) -> np.ndarray:
    g = GraphBuilder("rows")
    g.output("y", g.linear(g.input("x", "rows", packed.in_features), packed))
    plan = g.build()
    executor = NativeExecutor(plan, _native.Engine(1)) if native else ReferenceExecutor(plan)
    return np.asarray(executor.run({"x": x})["y"])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_other_pairs_of_type_and_format_go_by_values(kind: str, format: str) -> None:
    part = quantised(normal(33, 64), kind)
    packed = packer(format).pack("t", part)
    np.testing.assert_array_equal(packed.data, pack_reference(part.to_f32(), format).data)


@pytest.mark.parametrize("format", FORMATS)
def test_tensors_of_more_than_one_chunk(format: str) -> None:
    part = quantised(normal(1000, 512), "Q5_0")
    assert 16 <= part.row_chunk(16) < 1000
    packed = packer(format).pack("t", part)
    np.testing.assert_array_equal(packed.data, pack_reference(part.to_f32(), format).data)


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0"])
def test_packing_needs_little_more_memory_than_its_result(kind: str) -> None:
    rows = 100_000
    stored = np.tile(quantize(normal(16, 64), GGMLQuantizationType[kind]), (rows // 16, 1))
    part = tensor(stored, kind, 64)
    tracemalloc.start()
    try:
        packer().pack("t", part)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000 < rows * 64 * 4  # the result lies in an arena


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("sizes", [(32, 16, 16), (48, 17, 5), (20, 7, 33)], ids=str)
def test_stacks_of_different_types(sizes: tuple[int, ...], format: str) -> None:
    parts = [
        tensor(wild(sizes[0], 64), "Q8_0", 64),
        quantised(normal(sizes[1], 64), "Q5_1"),
        normal(sizes[2], 64).astype(np.float16),
    ]
    if format == "q4":  # the wild scales times 128 are too large for its scale
        parts[0] = quantised(normal(sizes[0], 64))
    values = [p.astype(np.float32) if isinstance(p, np.ndarray) else p.to_f32() for p in parts]
    packed = packer(format).stack("t", parts)
    expected = [pack_reference(v, format).to_f32() for v in values]
    if format == "q8":
        expected[0] = values[0]
    assert_same_bits(packed.to_f32(), np.concatenate(expected))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("scale", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0"])
def test_scales_that_are_not_finite_are_refused_by_name(kind, scale, format) -> None:
    stored = quantize(normal(20, 64), GGMLQuantizationType[kind]).copy()
    stored[17, :2] = np.float16([scale]).view(np.uint8)
    with pytest.raises(CheckpointError, match=r"Tensor blk\.3 holds a value that is not finite"):
        packer(format).pack("blk.3", tensor(stored, kind, 64))


@pytest.mark.parametrize("shape", [*SHAPES, (5000, 96)], ids=str)
def test_tiles_can_be_read_back(shape: tuple[int, int]) -> None:
    blocks = tensor(wild(*shape), "Q8_0", shape[1]).q8_0()
    data = np.full(_native.packed_bytes("q8", *shape), 0xAB, np.uint8)
    write_q8_tiles(blocks, data)
    again = read_q8_tiles(data, *blocks.scales.shape)
    assert isinstance(again, Q8Blocks)
    assert again.shape == shape
    np.testing.assert_array_equal(again.values, blocks.values)
    np.testing.assert_array_equal(again.scales.view(np.uint16), blocks.scales.view(np.uint16))
