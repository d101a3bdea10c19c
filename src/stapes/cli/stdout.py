"""Standard output: each piece visible at once, and one sentence when it cannot be written."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable

import click

from stapes.errors import RequestError, StapesError
from stapes.output.files import storage_error
from stapes.output.formats import encode


def write(text: str, encoding: str | None = None) -> None:
    """Write text in an encoding, by default the terminal's, and flush it.

    Raises:
        BrokenPipeError: the reader has enough, which is not an error of ours.
        CapacityError, RequestError: it cannot be written.
    """
    if sys.stdout is None:  # click would say nothing
        raise RequestError("standard output is closed; the answer was to go there.")
    data = encode(text, encoding or getattr(sys.stdout, "encoding", None))
    try:
        click.echo(data, nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise failure(error) from error


def lines(texts: Iterable[str]) -> None:
    """Write lines without their ends; errors are those of `write`."""
    write("".join(f"{text}\n" for text in texts))


def failure(error: OSError) -> StapesError:
    """The sentence for a write that failed; what is still buffered is given up."""
    _discard()
    return storage_error(error, "to standard output")


def _discard() -> None:
    """Send what is still buffered nowhere; the interpreter would fail once more on its way out."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
