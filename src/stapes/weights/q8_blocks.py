"""Blocks that are already q8: put into tiles as they are, without a change of any number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stapes.tensors.quantised import Q8Blocks
from stapes.weights.matrix import BLOCK, QUAD, TILE

_SCALE_BYTES = TILE * 2  # the f16 scales in front of a tile's block
_BLOCK_BYTES = _SCALE_BYTES + TILE * BLOCK
_QUADS = BLOCK // QUAD

_CHUNK_BYTES = 1 << 20  # of tiles that are written at a time: they stay in a core's cache


def write_q8_tiles(blocks: Q8Blocks, data: NDArray[np.uint8]) -> None:
    """Writes blocks [out, in / 32] into `data`, the packed bytes of a q8 matrix [out, in].

    The same integers and scales, only interleaved (see `stapes.weights.matrix`); outputs that fill
    the last tile up become zeros. `data` is uint8, one-dimensional and exactly as long as needed.
    """
    out_features, n_blocks = blocks.scales.shape
    tiles = data.reshape(-1, n_blocks, _BLOCK_BYTES)
    whole = out_features // TILE
    step = max(1, _CHUNK_BYTES // (n_blocks * _BLOCK_BYTES))
    for start in range(0, whole, step):
        end = min(start + step, whole)
        rows = slice(start * TILE, end * TILE)
        _interleave(blocks.scales[rows], blocks.values[rows], tiles[start:end])
    if whole < len(tiles):
        missing = ((0, TILE - out_features % TILE), (0, 0))
        scales = np.pad(blocks.scales[whole * TILE :], missing)
        values = np.pad(blocks.values[whole * TILE :], (*missing, (0, 0)))
        _interleave(scales, values, tiles[whole:])


def _interleave(
    scales: NDArray[np.float16], values: NDArray[np.int8], tiles: NDArray[np.uint8]
) -> None:
    """Whole tiles of rows -> [tiles, blocks, bytes]; four inputs move as one 32-bit word."""
    count, n_blocks, _ = tiles.shape
    by_tile = scales.reshape(count, TILE, n_blocks)
    tiles[:, :, :_SCALE_BYTES].view(np.float16)[:] = by_tile.transpose(0, 2, 1)
    quads = np.ascontiguousarray(values).view(np.uint32).reshape(count, TILE, n_blocks, _QUADS)
    words = tiles[:, :, _SCALE_BYTES:].view(np.uint32).reshape(count, n_blocks, _QUADS, TILE)
    words[:] = quads.transpose(0, 2, 3, 1)


def read_q8_tiles(data: NDArray[np.uint8], out_features: int, n_blocks: int) -> Q8Blocks:
    """The blocks [out_features, n_blocks] of packed bytes: what `write_q8_tiles` was given."""
    tiles = data.reshape(-1, n_blocks, _BLOCK_BYTES)
    scales = tiles[:, :, :_SCALE_BYTES].view(np.float16).transpose(0, 2, 1)
    words = tiles[:, :, _SCALE_BYTES:].view(np.uint32).reshape(-1, n_blocks, _QUADS, TILE)
    values = np.ascontiguousarray(words.transpose(0, 3, 1, 2)).view(np.int8)
    return Q8Blocks(
        scales.reshape(-1, n_blocks)[:out_features],
        values.reshape(-1, n_blocks, BLOCK)[:out_features],
    )
