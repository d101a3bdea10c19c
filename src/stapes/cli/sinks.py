"""Where transcripts go: to standard output, or into files for each recording."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from stapes.cli import messages, stdout
from stapes.errors import RequestError
from stapes.output.files import (
    check_directory,
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

    def write_part(self, file: str, transcript: Transcript) -> None:
        """Take the part of a transcript that was done when it was interrupted."""
        ...


class StdoutSink:
    """One transcript after another on standard output, each visible at once."""

    def __init__(self, output: OutputFormat) -> None:
        self._output = output

    def write(self, file: str, transcript: Transcript) -> None:
        """Print one transcript in the format's encoding, else the terminal's."""
        stdout.write(self._output.render(file, transcript), self._output.encoding)

    def write_part(self, file: str, transcript: Transcript) -> None:
        """Print it like a whole one."""
        self.write(file, transcript)


def finished(
    outputs: Sequence[OutputFormat], files: Sequence[str], directory: Path | None
) -> set[str]:
    """The recordings that have all of their files: these are written whole or not at all."""
    by_format = [output_paths(files, directory, output.suffix) for output in outputs]
    paths = zip(files, zip(*by_format, strict=True), strict=True)
    return {file for file, ours in paths if all(path.is_file() for path in ours)}


class FileSink:
    """A file of each format for each recording; standard error says which."""

    def __init__(
        self, outputs: Sequence[OutputFormat], files: Sequence[str], directory: Path | None
    ) -> None:
        """Refuse what cannot be written, before any work.

        Without a folder the files go beside the recordings and replace none that is there: nobody
        has said that it may be replaced.
        """
        by_format = [output_paths(files, directory, output.suffix) for output in outputs]
        self._outputs = outputs
        self._paths = dict(zip(files, zip(*by_format, strict=True), strict=True))
        if directory is not None:
            prepare_directory(directory)
        else:
            _check_beside([path for paths in by_format for path in paths])

    def write(self, file: str, transcript: Transcript) -> None:
        """Write one transcript in all formats, each file whole or not at all."""
        for output, path in zip(self._outputs, self._paths[file], strict=True):
            write_atomically(path, encode(output.render(file, transcript), "utf-8"))
            messages.note(f"wrote {path}")

    def write_part(self, file: str, transcript: Transcript) -> None:
        """Print it: a file would look like a whole one, to --resume, too."""
        StdoutSink(self._outputs[0]).write(file, transcript)


def _check_beside(paths: Sequence[Path]) -> None:
    for path in paths:
        if os.path.lexists(path):
            raise RequestError(
                f"{path} is there already: remove it, or give --output-dir, which replaces files."
            )
    for folder in {path.parent for path in paths}:
        # A folder that is missing has no recording either: that is told when its turn comes.
        if os.path.isdir(folder):
            check_directory(folder)
