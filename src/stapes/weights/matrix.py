"""The packed layout, written down in NumPy.

A matrix [out, in] is cut into tiles of 16 outputs (the last one padded with zero rows). Inside a
tile the outputs are interleaved, so that the lanes of a vector register are outputs:

* ``f32`` and ``bf16``: ``[in][16]`` words.
* ``q8``: per block of 32 inputs (the last one padded with zeros) 16 f16 scales, then
  ``[8 quads of inputs][16 outputs][4]`` int8. The numbers are those of GGUF's Q8_0:
  scale = max|x| / 127, values rounded half away from zero.

These functions are the reference for the core's packing and unpacking, which are the fast ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.options import WEIGHT_FORMATS

TILE = 16
BLOCK = 32

_BF16_ROUND = np.uint32(0x7FFF)


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """A matrix [out_features, in_features] in the packed layout.

    Attributes:
        format: "f32", "bf16" or "q8".
        data: uint8, one-dimensional; may be memory-mapped and read-only.
    """

    format: str
    out_features: int
    in_features: int
    data: NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.data.nbytes)

    def to_f32(self) -> NDArray[np.float32]:
        """The matrix [out_features, in_features] as f32, dequantised."""
        if self.format == "q8":
            values, scales = self.quants()
            dense = values * np.repeat(scales, BLOCK, axis=1)
        elif self.format == "bf16":
            dense = self._untiled(bf16_to_f32(self.data.view(np.uint16)))
        else:
            dense = self._untiled(self.data.view(np.float32))
        return np.ascontiguousarray(dense[: self.out_features, : self.in_features])

    def _untiled(self, words: NDArray[np.float32]) -> NDArray[np.float32]:
        tiles = words.reshape(-1, self.in_features, TILE)
        return tiles.transpose(0, 2, 1).reshape(-1, self.in_features)

    def quants(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """q8 only: values [padded out, padded in] and scales [padded out, blocks], both as f32."""
        blocks = -(-self.in_features // BLOCK)
        raw = self.data.reshape(-1, blocks, TILE * 2 + TILE * BLOCK)
        scales = np.ascontiguousarray(raw[..., : TILE * 2]).view(np.float16)
        values = np.ascontiguousarray(raw[..., TILE * 2 :]).view(np.int8)
        values = values.reshape(-1, blocks, BLOCK // 4, TILE, 4).transpose(0, 3, 1, 2, 4)
        return (
            values.reshape(-1, blocks * BLOCK).astype(np.float32),
            scales.transpose(0, 2, 1).reshape(-1, blocks).astype(np.float32),
        )


def f32_to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round f32 to bf16 words, to nearest even. Infinities and NaN stay what they are."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + _BF16_ROUND + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet_nan, rounded).astype(np.uint16)


def bf16_to_f32(words: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Widen bf16 words to f32, exactly."""
    return (words.astype(np.uint32) << np.uint32(16)).view(np.float32)


def pack_reference(matrix: NDArray[np.float32], format: str) -> PackedMatrix:
    """Pack a matrix [out, in] f32; the reference of the core's packing."""
    assert format in WEIGHT_FORMATS
    out_features, in_features = matrix.shape
    rows = -(-out_features // TILE) * TILE
    columns = -(-in_features // BLOCK) * BLOCK if format == "q8" else in_features
    padded = np.zeros((rows, columns), np.float32)
    padded[:out_features, :in_features] = matrix
    if format == "q8":
        data = _pack_q8(padded).reshape(-1)
    else:
        words = padded if format == "f32" else f32_to_bf16(padded)
        tiles = words.reshape(-1, TILE, columns).transpose(0, 2, 1)
        data = np.ascontiguousarray(tiles).reshape(-1).view(np.uint8)
    return PackedMatrix(format, out_features, in_features, data)


def _pack_q8(padded: NDArray[np.float32]) -> NDArray[np.uint8]:
    blocks = padded.reshape(padded.shape[0], -1, BLOCK)
    scale = np.abs(blocks).max(axis=2) / np.float32(127)
    stored = scale.astype(np.float16)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=stored != 0)
    scaled = blocks * inverse[..., None]
    magnitude = np.abs(scaled)
    whole = np.floor(magnitude)
    whole += magnitude - whole >= np.float32(0.5)  # adding 0.5 first would round 0.49999997 up
    values = (np.sign(scaled) * whole).astype(np.int8)
    tiles = values.reshape(-1, TILE, blocks.shape[1], BLOCK // 4, 4).transpose(0, 2, 3, 1, 4)
    scales = stored.reshape(-1, TILE, blocks.shape[1]).transpose(0, 2, 1)
    shape = (tiles.shape[0], tiles.shape[1], -1)
    return np.concatenate(
        [
            np.ascontiguousarray(scales).view(np.uint8).reshape(shape),
            np.ascontiguousarray(tiles).reshape(shape).view(np.uint8),
        ],
        axis=2,
    )
