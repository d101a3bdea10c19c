"""A model's text files, wherever they are kept: in a folder on disk, or in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class File(Protocol):
    """What is asked of a file; a `pathlib.Path` will do. As text it is its name in messages."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        ...

    def exists(self) -> bool:
        """Whether it is there."""
        ...

    def read_text(self, encoding: str, /) -> str:
        """All of it; OSError or ValueError when it cannot be read."""
        ...


class Folder(Protocol):
    """What is asked of a folder; a `pathlib.Path` will do. As text it is its name in messages."""

    def __truediv__(self, name: str, /) -> File: ...


@dataclass(frozen=True)
class MemoryFolder:
    """Files that are kept in another one, such as a converted model.

    Attributes:
        where: the path of that one, for messages.
        files: their content by name.
    """

    where: str
    files: Mapping[str, str]

    def __truediv__(self, name: str, /) -> MemoryFile:
        return MemoryFile(f"{self.where}/{name}", name, self.files.get(name))

    def __str__(self) -> str:
        return self.where


@dataclass(frozen=True)
class MemoryFile:
    """One file of a MemoryFolder; without content it is not there."""

    path: str
    name: str
    content: str | None

    def exists(self) -> bool:
        """Whether it is there."""
        return self.content is not None

    def read_text(self, encoding: str, /) -> str:
        """All of it."""
        if self.content is None:
            raise FileNotFoundError(2, "No such file", self.path)
        return self.content

    def __str__(self) -> str:
        return self.path
