"""Where transcripts go: to standard output, or into a file for each recording."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from stapes.cli import messages
from stapes.output.files import (
    output_paths,
    prepare_directory,
    storage_error,
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
        encoding = self._output.encoding or getattr(sys.stdout, "encoding", None)
        data = encode(self._output.render(file, transcript), encoding)
        try:
            click.echo(data, nl=False)
        except BrokenPipeError:
            raise  # the reader has enough: not an error of ours
        except OSError as error:
            _discard_stdout()
            raise storage_error(error, "to standard output") from error


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


def _discard_stdout() -> None:
    """Send what is still buffered nowhere; the interpreter would fail once more on its way out."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
