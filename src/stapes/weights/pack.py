"""Packing: what a checkpoint stores -> tiles. Words go through the native core, on all threads."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stapes import _native
from stapes.errors import CheckpointError
from stapes.tensors.quantised import Q8_0, Q8Blocks, QuantisedTensor
from stapes.tensors.tensor import widen
from stapes.weights.arena import Arena
from stapes.weights.matrix import BLOCK, TILE, PackedMatrix
from stapes.weights.q8_blocks import read_q8_tiles, write_q8_tiles

Words: TypeAlias = NDArray[Any]

#: A matrix [out, in] as it is stored: float32, float16, or uint16 (bf16 words), or quantised rows.
Stored: TypeAlias = Words | QuantisedTensor

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
        format: "f32", "bf16", "q8" or "q4".
    """

    def __init__(self, engine: _native.Engine, format: str) -> None:
        self._engine = engine
        self.format = format
        self._arena = Arena()
        self._others: dict[str, MatrixPacker] = {}

    def into(self, format: str) -> MatrixPacker:
        """The packer into a format on the same engine; the same one each time."""
        if format == self.format:
            return self
        return self._others.setdefault(format, MatrixPacker(self._engine, format))

    def pack(self, name: str, matrix: Stored) -> PackedMatrix:
        """Pack a matrix [out, in] of float32, float16, uint16 (bf16 words), or quantised rows.

        Q8_0 rows keep their exact numbers when the format is q8; all others are dequantised.

        Raises:
            CheckpointError: a value is NaN or infinite, or too large for the format's f16 scales.
        """
        return self.stack(name, [matrix])

    def stack(self, name: str, parts: Sequence[Stored]) -> PackedMatrix:
        """Pack matrices [out_i, in] one above the other, as one of sum(out_i) outputs.

        Every part but the last should have a multiple of 16 outputs; others are joined first.
        """
        blocks = [self._as_blocks(part) for part in parts]
        if any(part.shape[0] % TILE for part in parts[:-1]):
            blocks = [self._joined(name, blocks)]
        out_features, in_features = sum(p.shape[0] for p in blocks), blocks[0].shape[1]
        data = self._arena.take(self._size(out_features, in_features))
        start = 0
        for part in blocks:
            size = self._size(*part.shape)
            self._pack_into(name, part, data[start : start + size])
            start += size
        return PackedMatrix(self.format, out_features, in_features, data)

    def _size(self, out_features: int, in_features: int) -> int:
        return _native.packed_bytes(self.format, out_features, in_features)

    def _as_blocks(self, part: Stored) -> Stored | Q8Blocks:
        """The blocks themselves, where they are of the format already."""
        if isinstance(part, QuantisedTensor) and (self.format, part.dtype) == ("q8", Q8_0):
            return part.q8_0()
        return part

    def _joined(self, name: str, parts: Sequence[Stored | Q8Blocks]) -> Words | Q8Blocks:
        """Parts of any height as one. Where one of them keeps its blocks, all become blocks."""
        others = [part for part in parts if not isinstance(part, Q8Blocks)]
        if len(others) == len(parts):
            return np.concatenate([_as_f32(part) for part in others])
        blocks = [self._quantised(name, part) for part in parts]
        return Q8Blocks(
            np.concatenate([part.scales for part in blocks]),
            np.concatenate([part.values for part in blocks]),
        )

    def _quantised(self, name: str, part: Stored | Q8Blocks) -> Q8Blocks:
        if isinstance(part, Q8Blocks):
            return part
        return read_q8_tiles(self.pack(name, part).data, part.shape[0], part.shape[1] // BLOCK)

    def _pack_into(self, name: str, part: Stored | Q8Blocks, data: NDArray[np.uint8]) -> None:
        if isinstance(part, Q8Blocks):
            if not np.isfinite(part.scales).all():
                raise self._refusal(name)
            write_q8_tiles(part, data)
        elif isinstance(part, QuantisedTensor):
            self._pack_rows(name, part, data)
        else:
            self._pack_words(name, part, data)

    def _pack_rows(self, name: str, part: QuantisedTensor, data: NDArray[np.uint8]) -> None:
        """Dequantise and pack some tiles at a time, so that memory stays flat."""
        (out_features, in_features), written = part.shape, 0
        step = part.row_chunk(TILE)
        for start in range(0, out_features, step):
            rows = part.rows(start, min(start + step, out_features))
            size = self._size(len(rows), in_features)
            self._pack_words(name, rows, data[written : written + size])
            written += size

    def _pack_words(self, name: str, part: Words, data: NDArray[np.uint8]) -> None:
        words = np.ascontiguousarray(part)
        source = words.reshape(-1).view(np.uint8)
        kind, (out_features, in_features) = _SOURCE_TYPES[words.dtype], words.shape
        if not _native.pack(
            self._engine, self.format, kind, out_features, in_features, source, data
        ):
            raise self._refusal(name)

    def _refusal(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"Tensor {name} holds a value that is not finite or too large for {self.format}."
        )


def _as_f32(part: Stored) -> NDArray[np.float32]:
    return part.to_f32() if isinstance(part, QuantisedTensor) else widen(part)


def packed_size(shape: tuple[int, ...], format: str) -> int:
    """Bytes that a tensor takes once it is packed: a matrix [out, ...], or a vector, always f32."""
    if len(shape) < 2:
        return 4 * prod(shape)
    return _native.packed_bytes(format, shape[0], prod(shape[1:]))
