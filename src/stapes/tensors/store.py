"""A set of tensors in mapped files."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from stapes.errors import CheckpointError, RequestError
from stapes.tensors.header import Entry, Header
from stapes.tensors.tensor import Tensor


@dataclass(frozen=True)
class MappedFile:
    """One file, mapped read-only, with its checked header."""

    path: Path
    header: Header
    memory: mmap.mmap

    def close(self) -> None:
        """Gives the mapping back, or leaves that to the last view that is still alive."""
        with contextlib.suppress(BufferError):
            self.memory.close()


class MappedStore:
    """What all stores share: the names in mapped files, their places, and closing.

    Tensors are views of the mapped files and are made when asked for. They, and arrays made from
    them, stay valid after `close`, which gives the mapping back as soon as the last one is gone.
    """

    def __init__(self, files: list[MappedFile]) -> None:
        self._files = files
        self._places: dict[str, tuple[MappedFile, Entry]] = {
            name: (file, entry) for file in files for name, entry in file.header.entries.items()
        }
        self._closed = False

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read, in order."""
        return tuple(file.path for file in self._files)

    def names(self) -> tuple[str, ...]:
        """All names, in the order in which their bytes lie in the files."""
        return tuple(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def release(self, name: str) -> None:
        """Tells the system that a tensor's pages are not needed now.

        Called after each tensor has been packed, it keeps a checkpoint from being resident twice.
        Never changes a value: what is touched again is read from the file again. Raises
        CheckpointError when there is no such tensor, RequestError after `close`.
        """
        file, entry = self._place(name)
        if not hasattr(mmap, "MADV_DONTNEED") or entry.begin == entry.end:
            return
        start = entry.begin - entry.begin % mmap.PAGESIZE
        file.memory.madvise(mmap.MADV_DONTNEED, start, entry.end - start)

    def _place(self, name: str) -> tuple[MappedFile, Entry]:
        if self._closed:
            raise RequestError(f"Tensor {name!r} was asked of a store that is closed.")
        if name not in self._places:
            files = ", ".join(str(path) for path in self.files)
            raise CheckpointError(f"There is no tensor {name!r} in {files}.")
        return self._places[name]

    def close(self) -> None:
        """Gives the files back; may be called twice."""
        self._closed = True
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class TensorStore(MappedStore):
    """The tensors of a checkpoint by name: `in`, `[name]`, iteration and `len` as of a mapping."""

    @property
    def metadata(self) -> dict[str, str]:
        """`__metadata__` of the files; where two define a key, the first file's value."""
        merged: dict[str, str] = {}
        for file in reversed(self._files):
            merged.update(file.header.metadata)
        return merged

    def __getitem__(self, name: str) -> Tensor:
        """Raises CheckpointError when there is no such tensor, RequestError after `close`."""
        file, entry = self._place(name)
        data = memoryview(file.memory)[entry.begin : entry.end]
        return Tensor(name, entry.dtype, entry.shape, data)
