"""One tensor of a file: what the header says of it, and a view of its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stapes.errors import CheckpointError

# Stored words of the dtypes that can be read. NumPy has no bfloat16, so its words stay uint16.
READABLE: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


def widen(words: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The values of stored words as float32, same shape.

    float32 comes back as it is (no copy), float16 is converted, uint16 is taken for bfloat16: the
    upper half of a float32, so the bits shifted left by 16 are the value, exactly.
    """
    if words.dtype == np.uint16:
        bits = words.astype(np.uint32)
        bits <<= 16
        return bits.view(np.float32)
    with np.errstate(invalid="ignore"):  # a signalling NaN is a value to be passed on
        return words.astype(np.float32, copy=False)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A named view of bytes in a mapped file.

    Attributes:
        name: as the file spells it.
        dtype: as a safetensors header spells it: "F32", "F16", "BF16", "I64", ...
        shape: () for a scalar.
        data: the bytes, read-only, not copied; it keeps the file mapped.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    def raw(self) -> npt.NDArray[Any]:
        """The stored words, shaped: float32, float16, or uint16 for BF16; read-only.

        A view of the file, unless the words do not lie aligned in it: then an aligned copy.
        Raises CheckpointError for every other dtype.
        """
        if self.dtype not in READABLE:
            raise CheckpointError(
                f"Tensor {self.name!r} has dtype {self.dtype}, which cannot be read as weights; "
                f"{', '.join(READABLE)} can."
            )
        words = np.frombuffer(self.data, dtype=READABLE[self.dtype]).reshape(self.shape)
        if not words.flags.aligned:
            words = words.copy()
            words.flags.writeable = False
        return words

    def to_f32(self) -> npt.NDArray[np.float32]:
        """All values as float32, shaped; a view for F32, a new array for F16 and BF16.

        A large tensor is better widened by blocks of rows: `widen(tensor.raw()[a:b])`.
        Raises CheckpointError for dtypes other than F32, F16 and BF16.
        """
        return widen(self.raw())
