"""A read-only file made of pieces: byte strings and ranges of another file, end to end.

The decoder is handed such a view instead of a path. So it sees no file name (a leading dash, a
protocol prefix or a wrong extension cannot mislead it), the caller's stream is never closed, and
a file's structure can be presented in a plainer form than it has on disk.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import BinaryIO

Range = tuple[int, int]
Piece = bytes | Range


class PieceReader:
    """The pieces as one seekable stream.

    Attributes:
        error: the first error that reading the underlying file raised; the reader then reports the
            end of the file, because an exception must not cross the decoder's C code.
    """

    def __init__(self, file: BinaryIO, pieces: Sequence[Piece]) -> None:
        self._file = file
        self._pieces = [piece for piece in pieces if _length(piece)]
        self._ends = list(accumulate(_length(piece) for piece in self._pieces))
        self._position = 0
        self.error: Exception | None = None

    @property
    def size(self) -> int:
        """Bytes in all pieces together."""
        return self._ends[-1] if self._ends else 0

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes, perhaps fewer (never across two pieces); empty at the end."""
        index = bisect_right(self._ends, self._position)
        if index == len(self._pieces):
            return b""
        left = self._ends[index] - self._position
        data = self._read_piece(self._pieces[index], left, left if size < 0 else min(size, left))
        self._position += len(data)
        return data

    def _read_piece(self, piece: Piece, left: int, size: int) -> bytes:
        if isinstance(piece, bytes):
            offset = len(piece) - left
            return piece[offset : offset + size]
        try:
            self._file.seek(piece[1] - left)
            return self._file.read(size)
        except Exception as error:
            self.error = self.error or error
            return b""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move as a file does; a place before the start is the start."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """The present position in bytes."""
        return self._position

    def seekable(self) -> bool:
        """Always true."""
        return True


def _length(piece: Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece[1] - piece[0]
