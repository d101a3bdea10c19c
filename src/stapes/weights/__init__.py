"""Packed weights: matrices in the tiled layout that the native core reads, quantised or not."""

from stapes.weights.matrix import BLOCK, TILE, PackedMatrix, pack_reference
from stapes.weights.pack import MatrixPacker

__all__ = ["BLOCK", "TILE", "MatrixPacker", "PackedMatrix", "pack_reference"]
