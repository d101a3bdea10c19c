"""Packing in the native core: stored words of a checkpoint -> tiles, on all threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stapes import _native
from stapes.errors import CheckpointError
from stapes.weights.matrix import TILE, PackedMatrix

#: What the core calls the words of a NumPy array; bf16 words come as uint16.
_SOURCE_TYPES = {
    np.dtype(np.float32): "f32",
    np.dtype(np.float16): "f16",
    np.dtype(np.uint16): "bf16",
}


class MatrixPacker:
    """Packs matrices into one format.

    Args:
        engine: threads and kernels that do the work.
        format: "f32", "bf16" or "q8".
    """

    def __init__(self, engine: _native.Engine, format: str) -> None:
        self._engine = engine
        self.format = format

    def pack(self, name: str, matrix: NDArray[np.generic]) -> PackedMatrix:
        """Pack a matrix [out, in] of float32, float16, or uint16 (bf16 words).

        Raises:
            CheckpointError: a value is NaN or infinite, or too large for the format's f16 scales.
        """
        return self.stack(name, [matrix])

    def stack(self, name: str, parts: Sequence[NDArray[np.generic]]) -> PackedMatrix:
        """Pack matrices [out_i, in] one above the other, as one of sum(out_i) outputs.

        Every part but the last must have a multiple of 16 outputs; others are joined first.
        """
        if any(part.shape[0] % TILE for part in parts[:-1]) or len({p.dtype for p in parts}) > 1:
            parts = [np.concatenate([_as_f32(part) for part in parts])]
        out_features, in_features = sum(part.shape[0] for part in parts), parts[0].shape[1]
        data = np.empty(_native.packed_bytes(self.format, out_features, in_features), np.uint8)
        start = 0
        for part in parts:
            size = _native.packed_bytes(self.format, part.shape[0], in_features)
            self._pack_into(name, part, data[start : start + size])
            start += size
        return PackedMatrix(self.format, out_features, in_features, data)

    def _pack_into(self, name: str, part: NDArray[np.generic], data: NDArray[np.uint8]) -> None:
        words = np.ascontiguousarray(part)
        source = words.reshape(-1).view(np.uint8)
        kind, (out_features, in_features) = _SOURCE_TYPES[words.dtype], words.shape
        if not _native.pack(
            self._engine, self.format, kind, out_features, in_features, source, data
        ):
            raise CheckpointError(
                f"Tensor {name} holds a value that is not finite or too large for {self.format}."
            )


def _as_f32(part: NDArray[np.generic]) -> NDArray[np.float32]:
    if part.dtype == np.uint16:
        return (part.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return part.astype(np.float32)
