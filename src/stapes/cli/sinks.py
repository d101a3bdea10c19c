"""Where transcripts go: to standard output, or into a file for each recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stapes.cli import messages, stdout
from stapes.output.files import (
    output_paths,
    prepare_directory,
    write_atomically,
)
from stapes.output.formats import OutputFormat, encode

if TYPE_CHECKING:
    from stapes.models.transcript import Transcript


class Sink(Protocol):
    """Takes the transcripts in the order of the recordings, without those that failed."""

    def write(self, file: str, transcript: Transcript) -> None:
        """Take one transcript."""
        ...


class StdoutSink:
    """One transcript after another on standard output, each visible at once."""

    def __init__(self, output: OutputFormat) -> None:
        self._output = output

    def write(self, file: str, transcript: Transcript) -> None:
        """Print one transcript in the format's encoding, else the terminal's."""
        stdout.write(self._output.render(file, transcript), self._output.encoding)


class FolderSink:
    """A file for each recording; standard error says which."""

    def __init__(self, output: OutputFormat, directory: Path, files: Sequence[str]) -> None:
        self._output = output
        paths = output_paths(files, directory, output.suffix)
        self._paths = dict(zip(files, paths, strict=True))
        prepare_directory(directory)

    def write(self, file: str, transcript: Transcript) -> None:
        """Write one transcript, whole or not at all."""
        path = self._paths[file]
        write_atomically(path, encode(self._output.render(file, transcript), "utf-8"))
        messages.note(f"wrote {path}")
