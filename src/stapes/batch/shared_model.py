"""One copy of a model in memory for all processes of a machine: a converted file, which is mapped.

A checkpoint is packed by whoever loads it, into memory of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stapes.models.convert import convert
from stapes.models.converted import ConvertedSource
from stapes.models.registry import available, find_model, open_source
from stapes.options import RuntimeOptions


def is_shared(model: str) -> bool:
    """Whether processes that load this model share its weights.

    Raises:
        ModelError: there is no such model.
    """
    return isinstance(open_source(find_model(model)), ConvertedSource)


@contextmanager
def packed_for_all(model: str, options: RuntimeOptions, file: Path) -> Iterator[str]:
    """Pack a model into a file that is there for as long as the block lasts.

    Raises:
        StapesError: see `convert`.
    """
    # By all processors: `threads` is a worker's share. A file that is there was left behind.
    convert(model, file, replace(options, threads=None), force=True)
    try:
        yield str(file)
    finally:
        file.unlink(missing_ok=True)


def absolute(model: str) -> str:
    """The model by a name that means the same in another working directory."""
    is_path = model not in available() and os.path.exists(model)
    return os.path.abspath(model) if is_path else model
