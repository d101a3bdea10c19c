"""Reads GGUF's numbers, texts and metadata values from a mapped file, never past its end.

Source: ggml-org/ggml's docs/gguf.md, and gguf.cpp for what its own reader refuses.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np

from stapes.errors import TensorFileError

Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Scalar | tuple[Scalar, ...]

U32, U64 = struct.Struct("<I"), struct.Struct("<Q")

# Metadata value types by their number in a file.
_NUMBERS: dict[int, np.dtype[np.generic]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
BOOL, TEXT, ARRAY = 7, 8, 9


class Cursor:
    """A position in a mapped file. Every method raises TensorFileError where bytes are missing."""

    def __init__(self, path: Path, memory: mmap.mmap, position: int) -> None:
        self.path = path
        self.position = position
        self._memory = memory
        self._end = len(memory)

    def u32(self, what: str) -> int:
        """The next unsigned 32-bit number; `what` names it in the error."""
        return int(U32.unpack(self._take(what, 4))[0])

    def u64(self, what: str) -> int:
        """The next unsigned 64-bit number."""
        return int(U64.unpack(self._take(what, 8))[0])

    def text(self, what: str, longest: int | None = None) -> str:
        """A text, its length in bytes before it."""
        length = self.u64(f"the length of {what}")
        if longest is not None and length > longest:
            self.refuse(f"{what} has {length} bytes, more than {longest}")
        return self._decode(what, self._take(what, length))

    def count(self, what: str, smallest: int) -> int:
        """A number of things to come, of at least `smallest` bytes each, which must fit."""
        count = self.u64(f"the number of {what}")
        self._require(f"{count} {what}", count * smallest)
        return count

    def value(self, what: str) -> Value:
        """A metadata value, its type before it."""
        kind = self.u32(f"the type of {what}")
        if kind == ARRAY:
            return self._array(what)
        return self._values(what, kind, 1)[0]

    def _array(self, what: str) -> tuple[Scalar, ...]:
        kind = self.u32(f"the element type of {what}")
        smallest = 8 if kind == TEXT else 1
        return self._values(what, kind, self.count(f"values of {what}", smallest))

    def _values(self, what: str, kind: int, count: int) -> tuple[Scalar, ...]:
        if kind == TEXT:
            return self._texts(what, count)
        if kind == BOOL:
            return self._booleans(what, count)
        if kind not in _NUMBERS:
            self.refuse(f"{what} has the unknown type {kind}")
        dtype = _NUMBERS[kind]
        data = self._take(what, count * dtype.itemsize)
        return tuple(np.frombuffer(data, dtype).tolist())

    def _booleans(self, what: str, count: int) -> tuple[bool, ...]:
        data = self._take(what, count)
        if data.strip(b"\0\1"):
            self.refuse(f"{what} holds a byte that is neither 0 nor 1")
        return tuple(byte == 1 for byte in data)

    def _texts(self, what: str, count: int) -> tuple[str, ...]:
        """As `text`, `count` times: a vocabulary has hundreds of thousands."""
        memory, end, position = self._memory, self._end, self.position
        texts: list[str] = []
        for _ in range(count):
            start = position + 8
            length = U64.unpack_from(memory, position)[0] if start <= end else 0
            if length > end - start:
                self.position = position
                self._require(f"a text of {what}", 8 + length)
            position = start + length
            texts.append(self._decode(what, memory[start:position]))
        self.position = position
        return tuple(texts)

    def _decode(self, what: str, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            self.refuse(f"{what} is not valid UTF-8: {error.reason} in {data[:40]!r}")

    def _take(self, what: str, size: int) -> bytes:
        self._require(what, size)
        start, self.position = self.position, self.position + size
        return self._memory[start : self.position]

    def _require(self, what: str, size: int) -> None:
        left = self._end - self.position
        if size > left:
            raise TensorFileError(
                f"{self.path} is truncated or damaged: {what} should take {size} bytes from byte "
                f"{self.position} on, but only {left} are left."
            )

    def refuse(self, reason: str) -> NoReturn:
        """Raises TensorFileError, naming the file and about where it is wrong."""
        raise TensorFileError(f"{self.path}: {reason} (before byte {self.position}).")
