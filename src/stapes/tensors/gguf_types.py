"""The types that GGUF tensors are stored in: sizes and dequantisers are the gguf package's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from stapes.tensors.tensor import READABLE


@dataclass(frozen=True)
class GgmlType:
    """A storage type: `block` values of a row lie together in `block_bytes` bytes."""

    name: str
    block: int
    block_bytes: int

    @property
    def is_plain(self) -> bool:
        """Whether the values are words, F32, F16 or BF16, and no blocks."""
        return self.name in READABLE


@cache
def ggml_type(number: int) -> GgmlType | None:
    """The type that a file means by a number; None when its size is not known."""
    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        return None
    block, size = GGML_QUANT_SIZES[kind]
    return GgmlType(kind.name, block, size)


@cache
def is_readable(kind: GgmlType) -> bool:
    """Whether values of this type can be turned into f32: asked of the dequantiser itself."""
    if kind.is_plain:
        return True
    try:
        dequantise(np.zeros((1, kind.block_bytes), np.uint8), kind.name)
    except NotImplementedError:
        return False
    return True


def dequantise(rows: npt.NDArray[np.uint8], name: str) -> npt.NDArray[np.float32]:
    """Stored rows [n, bytes] of a type -> values [n, in] f32, as the gguf package computes them.

    Blocks do not depend on each other. As one long row they are all computed together, not 16 rows
    at a time: four times as fast.
    """
    with np.errstate(all="ignore"):  # an infinite scale is for the packer to refuse, by name
        values = dequantize(rows.reshape(1, -1), GGMLQuantizationType[name])
    return np.asarray(values, np.float32).reshape(len(rows), -1)
