"""q8 holds the numbers of GGUF's Q8_0: the gguf package is the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from stapes import _native
from stapes.weights import MatrixPacker

quants = pytest.importorskip("gguf.quants")
gguf = pytest.importorskip("gguf")

Q8_0 = gguf.GGMLQuantizationType.Q8_0


def matrix() -> np.ndarray:
    """Blocks of very different sizes, zero and subnormal ones too, and edges between steps."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 96)).astype(np.float32)
    x *= np.float32(10.0) ** rng.integers(-9, 6, (64, 1))
    x[3] = 0
    x[4] = np.linspace(-127, 127, 96)
    x[5, :32] = np.arange(32) - 15.5
    x[5, 0] = 127
    x[6] *= 1e-30
    return x


@pytest.mark.parametrize("instructions", _native.instruction_sets())
def test_dequantised_values_are_those_of_gguf(instructions: str) -> None:
    x = matrix()
    packed = MatrixPacker(_native.Engine(2, instructions), "q8").pack("w", x)
    blocks = quants.quantize(x, Q8_0)
    np.testing.assert_array_equal(packed.to_f32(), quants.dequantize(blocks, Q8_0))


@pytest.mark.parametrize("instructions", _native.instruction_sets())
def test_scales_and_integers_are_those_of_gguf(instructions: str) -> None:
    x = matrix()
    packed = MatrixPacker(_native.Engine(2, instructions), "q8").pack("w", x)
    values, scales = packed.quants()
    blocks = quants.quantize(x, Q8_0).reshape(64, 3, 34)
    theirs = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0]
    np.testing.assert_array_equal(scales, theirs.astype(np.float32))
    integers = np.ascontiguousarray(blocks[..., 2:]).view(np.int8)
    used = scales != 0  # where the scale rounds to 0 they keep integers that nobody sees
    np.testing.assert_array_equal(values.reshape(64, 3, 32)[used], integers[used])
    assert used.any()
    assert not used.all()
