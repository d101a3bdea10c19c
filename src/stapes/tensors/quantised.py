"""A tensor whose rows are stored in quantised blocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from stapes.errors import CheckpointError

Q8_0 = "Q8_0"

#: Block of Q8_0: 32 int8 values and the f16 that all of them are multiplied by.
_Q8_0_BLOCK = np.dtype([("scale", "<f2"), ("values", "i1", (32,))])

_CHUNK_VALUES = 1 << 18  # values that are dequantised at a time: 1 MB of f32 was the fastest


@dataclass(frozen=True, eq=False)
class Q8Blocks:
    """A matrix [out, in] in blocks of 32 along its rows: value = scale * integer.

    Attributes:
        scales: f16 [out, in / 32]. values: int8 [out, in / 32, 32], -128 included.
        Both may be strided views of a mapped file.
    """

    scales: npt.NDArray[np.float16]
    values: npt.NDArray[np.int8]

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        out_features, blocks, size = self.values.shape
        return out_features, blocks * size


@dataclass(frozen=True, eq=False)
class QuantisedTensor:
    """A named view of quantised rows in a mapped file; see `Tensor` for tensors of plain words.

    Attributes:
        name: as the file spells it.
        dtype: the type's name in ggml, such as "Q4_K".
        shape: of the values; the last dimension is a whole number of blocks.
        data: the bytes, read-only, not copied; it keeps the file mapped.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    @property
    def n_rows(self) -> int:
        """Rows of shape[-1] values."""
        return prod(self.shape[:-1])

    def rows(self, start: int, end: int) -> npt.NDArray[np.float32]:
        """The values of rows start..end as f32 [end - start, shape[-1]], a new array."""
        from stapes.tensors.gguf_types import dequantise  # brings the gguf package

        return dequantise(self._stored()[start:end], self.dtype)

    def row_chunk(self, multiple: int) -> int:
        """How many rows are best dequantised at a time: a multiple of `multiple`."""
        return max(1, _CHUNK_VALUES // max(1, self.shape[-1]) // multiple) * multiple

    def to_f32(self) -> npt.NDArray[np.float32]:
        """All values as f32, shaped; a new array. `rows` takes less memory for large tensors."""
        values = np.empty((self.n_rows, self.shape[-1]), np.float32)
        step = self.row_chunk(1)
        for start in range(0, self.n_rows, step):
            values[start : start + step] = self.rows(start, min(start + step, self.n_rows))
        return values.reshape(self.shape)

    def raw(self) -> npt.NDArray[Any]:
        """As `to_f32`: blocks have no words of their own."""
        return self.to_f32()

    def q8_0(self) -> Q8Blocks:
        """The stored blocks of a Q8_0 matrix, not copied; CheckpointError for other types."""
        if self.dtype != Q8_0 or len(self.shape) != 2:
            raise CheckpointError(
                f"Tensor {self.name!r} is {self.dtype} of shape {list(self.shape)}, "
                f"not a matrix in {Q8_0}."
            )
        blocks = self._stored().reshape(-1).view(_Q8_0_BLOCK).reshape(self.n_rows, -1)
        return Q8Blocks(blocks["scale"], blocks["values"])

    def _stored(self) -> npt.NDArray[np.uint8]:
        """The bytes of every row [n_rows, bytes]."""
        return np.frombuffer(self.data, np.uint8).reshape(self.n_rows, -1)
