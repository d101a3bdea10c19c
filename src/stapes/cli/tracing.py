"""--trace FILE: the tracer of a command, and writing what it recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stapes.output.files import storage_error

if TYPE_CHECKING:
    from stapes.graph import Tracer


@contextmanager
def tracing(path: Path | None) -> Iterator[Tracer | None]:
    """A tracer whose record is written to `path` at the end, even of a failure; None without one.

    Raises:
        CapacityError, RequestError: `path` cannot be written, which is tried before any work.
    """
    if path is None:
        yield None
        return
    from stapes.graph import Tracer

    _write(path, "")
    tracer = Tracer()
    try:
        yield tracer
    finally:
        _write(path, tracer.to_json())


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise storage_error(error, f"the trace {path}") from None
