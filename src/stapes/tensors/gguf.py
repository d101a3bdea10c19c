"""Opens GGUF files."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path

from stapes.errors import StapesError, TensorFileError
from stapes.tensors.gguf_cursor import Value
from stapes.tensors.gguf_header import GgufHeader, read_gguf_header
from stapes.tensors.header import Header
from stapes.tensors.quantised import QuantisedTensor
from stapes.tensors.store import MappedFile, MappedStore
from stapes.tensors.tensor import READABLE, Tensor

__all__ = ["GgufStore", "Value", "open_gguf"]


class GgufStore(MappedStore):
    """The tensors of one GGUF file by name, and its metadata.

    Shapes are row-major: those of the file, reversed.
    """

    def __init__(self, path: Path, header: GgufHeader, memory: mmap.mmap) -> None:
        super().__init__([MappedFile(path, Header(header.entries, {}), memory)])
        self._metadata = header.metadata

    @property
    def metadata(self) -> Mapping[str, Value]:
        """Key -> number, boolean, text, or a tuple of these; read-only, valid after `close`."""
        return self._metadata

    def __getitem__(self, name: str) -> Tensor | QuantisedTensor:
        """Plain words (F32, F16, BF16) or quantised rows.

        Raises CheckpointError when there is no such tensor, RequestError after `close`.
        """
        file, entry = self._place(name)
        data = memoryview(file.memory)[entry.begin : entry.end]
        kind = Tensor if entry.dtype in READABLE else QuantisedTensor
        return kind(name, entry.dtype, entry.shape, data)


def open_gguf(path: str | os.PathLike[str]) -> GgufStore:
    """Maps a file and checks all of its header; no tensor is read yet.

    Raises TensorFileError for whatever is missing or damaged, CheckpointError with the names and
    types of all tensors that are stored in a type that cannot be read.
    """
    target = Path(path)
    memory = _map(target)
    try:
        return GgufStore(target, read_gguf_header(target, memory), memory)
    except StapesError:
        memory.close()
        raise


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise TensorFileError(f"{path} is empty.")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise TensorFileError(f"{path} cannot be read: {error.strerror or error}.") from error
