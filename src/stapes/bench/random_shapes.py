"""Random weights of given shapes, for benchmarks of networks without a published configuration."""

from __future__ import annotations

import math
import zlib

import numpy as np

from stapes.bench.synthetic import RandomTensor
from stapes.decoder.weights import Shapes
from stapes.weights.matrix import f32_to_bf16

_POOL = 1 << 22  # distinct random values that all tensors are cut from
_GAIN = 1.2  # of matrices, over the root of the inputs: values stay near 1 through all layers


class RandomShapes:
    """A source of random tensors of given shapes, the same each time: bf16 words.

    Matrices have a deviation of 1.2 / sqrt(fan-in). Vectors are 1 and biases 0, but those of
    adaptive norms' scales 1.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self._pool = np.random.default_rng(0).standard_normal(_POOL, dtype=np.float32)

    def __getitem__(self, name: str) -> RandomTensor:
        shape = self.shapes[name]
        if len(shape) == 1:
            value = 0.0 if name.endswith("bias") and "to_weight" not in name else 1.0
            return RandomTensor(f32_to_bf16(np.full(shape, value, np.float32)))
        start = zlib.crc32(name.encode()) % (_POOL // 2)  # whatever the order of reading
        values = np.resize(self._pool[start:], shape)
        values *= np.float32(_GAIN / math.sqrt(math.prod(shape[1:])))
        return RandomTensor(f32_to_bf16(values))

    def release(self, name: str) -> None:
        """Nothing is kept."""
