"""Packed weights: matrices in the tiled layout that the native core reads, quantised or not."""

from stapes.weights.matrix import BLOCK, TILE, PackedMatrix, pack_reference
from stapes.weights.pack import MatrixPacker, packed_size
from stapes.weights.policy import matrix_format
from stapes.weights.reader import CheckpointReader, TensorLike, TensorSource, WeightReader

__all__ = [
    "BLOCK",
    "TILE",
    "CheckpointReader",
    "MatrixPacker",
    "PackedMatrix",
    "TensorLike",
    "TensorSource",
    "WeightReader",
    "matrix_format",
    "pack_reference",
    "packed_size",
]
