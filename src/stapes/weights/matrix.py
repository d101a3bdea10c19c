"""The packed layout, written down in NumPy.

A matrix [out, in] is cut into tiles of 16 outputs (the last one padded with zero rows). Inside a
tile the outputs are interleaved, so that the lanes of a vector register are outputs:

* ``f32`` and ``bf16``: ``[in][16]`` words.
* ``q8``: per block of 32 inputs (the last one padded with zeros) 16 f16 scales, then
  ``[8 quads of inputs][16 outputs][4]`` int8. The numbers are those of GGUF's Q8_0:
  scale = max|x| / 127, values rounded half away from zero.
* ``q4``: the same with ``[4 octets of inputs][16 outputs][4]`` bytes: input 8j + i in the low
  nibble of byte i of octet j, input 8j + 4 + i in the high one, as the value plus 8. The numbers
  are GGUF's Q4_0 in form; the scale is chosen so that the large values keep their sizes.

These functions are the reference for the core's packing and unpacking, which are the fast ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.options import WEIGHT_FORMATS

TILE = 16
BLOCK = 32
QUAD = 4  # inputs of one output that lie together in q8
QUANTIZED = ("q8", "q4")

_BF16_ROUND = np.uint32(0x7FFF)


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """A matrix [out_features, in_features] in the packed layout.

    Attributes:
        format: "f32", "bf16", "q8" or "q4".
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
        if self.format in QUANTIZED:
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
        """q8, q4: values [padded out, padded in] and scales [padded out, blocks], both as f32."""
        blocks = -(-self.in_features // BLOCK)
        raw = self.data.reshape(-(-self.out_features // TILE), blocks, -1)
        scales = np.ascontiguousarray(raw[..., : TILE * 2]).view(np.float16)
        stored = np.ascontiguousarray(raw[..., TILE * 2 :])
        values = stored.view(np.int8) if self.format == "q8" else _nibbles(stored)
        values = values.reshape(-1, blocks, BLOCK // 4, TILE, 4).transpose(0, 3, 1, 2, 4)
        return (
            values.reshape(-1, blocks * BLOCK).astype(np.float32),
            scales.transpose(0, 2, 1).reshape(-1, blocks).astype(np.float32),
        )


def _nibbles(stored: NDArray[np.uint8]) -> NDArray[np.int8]:
    """[tiles, blocks, 256] bytes -> [tiles, blocks, 8 quads, 16 outputs, 4] values."""
    octets = stored.reshape(*stored.shape[:2], BLOCK // 8, 1, TILE, 4)
    quads = np.concatenate([octets & 15, octets >> 4], axis=3)
    return quads.astype(np.int8) - np.int8(8)


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
    columns = -(-in_features // BLOCK) * BLOCK if format in QUANTIZED else in_features
    padded = np.zeros((rows, columns), np.float32)
    padded[:out_features, :in_features] = matrix
    if format == "q8":
        data = _pack_blocks(padded, *_quantize_q8(padded.reshape(rows, -1, BLOCK)))
    elif format == "q4":
        data = _pack_blocks(padded, *_quantize_q4(padded.reshape(rows, -1, BLOCK)))
    else:
        words = padded if format == "f32" else f32_to_bf16(padded)
        tiles = words.reshape(-1, TILE, columns).transpose(0, 2, 1)
        data = np.ascontiguousarray(tiles).reshape(-1).view(np.uint8)
    return PackedMatrix(format, out_features, in_features, data)


Blocks = NDArray[np.float32]  # [rows, blocks, 32]


def _quantize_q8(blocks: Blocks) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
    """Scales [rows, blocks] and the stored byte of every value [rows, blocks, 32]."""
    scale = np.abs(blocks).max(axis=2) / np.float32(127)
    stored = scale.astype(np.float16)
    scaled = blocks * _inverse(scale, stored)
    magnitude = np.abs(scaled)
    whole = np.floor(magnitude)
    whole += magnitude - whole >= np.float32(0.5)  # adding 0.5 first would round 0.49999997 up
    return stored, (np.sign(scaled) * whole).astype(np.int8).view(np.uint8)


_Q4_STEPS = (8.0, 7.6, 7.2, 6.8, 8.4)


def _quantize_q4(blocks: Blocks) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
    """Scales [rows, blocks] and nibbles [rows, blocks, 4 octets, 4 bytes], two values each."""
    stored = _q4_scales(blocks).astype(np.float16)
    values = _q4_nearest(blocks * _inverse(stored.astype(np.float32), stored)).astype(np.uint8)
    quads = values.reshape(*blocks.shape[:2], BLOCK // 8, 2, 4)
    return stored, quads[..., 0, :] | quads[..., 1, :] << np.uint8(4)


def _q4_nearest(scaled: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nibble, from 0 to 15, of values in units of the scale."""
    nibbles: NDArray[np.float32] = np.clip(scaled + np.float32(8.5), np.float32(0), np.float32(15))
    return np.trunc(nibbles)


def _q4_scales(blocks: Blocks) -> NDArray[np.float32]:
    """The scales [rows, blocks] that leave the least error, each value weighed by its square.

    The value of largest magnitude is put at -s for some steps s, and each rounding gets its best
    scale. A block that q4 holds exactly keeps its scale.
    """
    first = np.abs(blocks).argmax(axis=2)[..., None]
    extreme = np.take_along_axis(blocks, first, axis=2)
    sound = np.abs(extreme) >= np.float32(1e-30)
    y = blocks * np.divide(np.float32(1), extreme, out=np.zeros_like(extreme), where=sound)
    best, chosen = np.full(extreme.shape[:2], -1, np.float32), np.zeros(extreme.shape[:2], "f4")
    for step in map(np.float32, _Q4_STEPS):
        v = _q4_nearest(y * -step) - np.float32(8)
        wv = y * y * v
        xq, qq = _lane_sums(wv * y), _lane_sums(wv * v)
        some = qq > 0
        gain = np.divide(xq * xq, qq, out=np.zeros_like(qq), where=some)
        scale = np.divide(xq, qq, out=np.zeros_like(qq), where=some) * extreme[..., 0]
        chosen = np.where(gain > best, scale, chosen)
        best = np.maximum(gain, best)
    return np.where(sound[..., 0], chosen, np.float32(0))


def _lane_sums(values: Blocks) -> NDArray[np.float32]:
    """Sums over blocks in the core's order: over every eighth value, then over these eight."""
    lanes = values.reshape(*values.shape[:2], BLOCK // 8, 8)
    total = lanes[..., 0, :]
    for i in range(1, BLOCK // 8):
        total = total + lanes[..., i, :]
    result: NDArray[np.float32] = total[..., 0]
    for lane in range(1, 8):
        result = result + total[..., lane]
    return result


def _inverse(scale: NDArray[np.float32], stored: NDArray[np.float16]) -> NDArray[np.float32]:
    """1 / scale [rows, blocks, 1]; 0 where the stored scale is 0, which makes a block of zeros."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=stored != 0)[..., None]


def _pack_blocks(
    padded: NDArray[np.float32], scales: NDArray[np.float16], stored: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Scales [rows, blocks] and stored bytes [rows, blocks, ...] -> packed tiles."""
    tiles, blocks = padded.shape[0] // TILE, padded.shape[1] // BLOCK
    quads = stored.reshape(tiles, TILE, blocks, -1, 4).transpose(0, 2, 3, 1, 4)
    by_tile = scales.reshape(tiles, TILE, blocks).transpose(0, 2, 1)
    parts = [
        np.ascontiguousarray(by_tile).view(np.uint8).reshape(tiles, blocks, -1),
        np.ascontiguousarray(quads).reshape(tiles, blocks, -1),
    ]
    return np.concatenate(parts, axis=2).reshape(-1)
