"""Standard output: each piece visible at once, and one sentence when it cannot be written."""

from __future__ import annotations

import contextlib
import os
import sys

import click

from stapes.output.files import storage_error
from stapes.output.formats import encode


def write(text: str, encoding: str | None = None) -> None:
    """Write text in an encoding, by default the terminal's, and flush it.

    Raises:
        BrokenPipeError: the reader has enough, which is not an error of ours.
        CapacityError, RequestError: it cannot be written.
    """
    data = encode(text, encoding or getattr(sys.stdout, "encoding", None))
    try:
        click.echo(data, nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard()
        raise storage_error(error, "to standard output") from error


def _discard() -> None:
    """Send what is still buffered nowhere; the interpreter would fail once more on its way out."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
