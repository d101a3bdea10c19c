"""Converting: a model is loaded, and all that its loading read is written into one file.

So this knows no model: what loads can be converted, and a converted file holds no more and no less
than loading needs.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from stapes.errors import CapacityError, RequestError
from stapes.graph import NO_TRACE
from stapes.models.converted import ConvertedSource, recorded_contents
from stapes.models.registry import find_model, open_source, package_of, settled_options
from stapes.models.source import ModelSource, RecordingSource
from stapes.options import RuntimeOptions
from stapes.weights.packed_file import write_packed


def convert(
    model: str | Path, destination: Path, options: RuntimeOptions, *, force: bool = False
) -> None:
    """Write a model into one file, packed in the formats of the options.

    Args:
        model: the name of a bundled model, a folder with a checkpoint, or a GGUF file.
        destination: the file, which appears whole or not at all.
        options: formats and threads.
        force: a file that is there may be replaced.

    Raises:
        RequestError: the destination cannot be written, or the model is converted already.
        ModelError: the model cannot be used.
        CapacityError: it does not fit into memory or onto the disk.
    """
    source = open_source(find_model(model))
    if isinstance(source, ConvertedSource):
        held = " and ".join(sorted(set(source.formats.values())))
        raise RequestError(
            f"{source.path} is a converted file already, in {held}; its weights cannot be packed "
            "once more: convert the original checkpoint."
        )
    check_destination(source, destination, force)
    started = time.perf_counter()
    recording = RecordingSource(source)
    package = package_of(source)
    options = settled_options(package, source, options)
    try:
        package.load_source(recording, str(model), options, NO_TRACE, started)
    except MemoryError:
        raise CapacityError(
            f"{model} does not fit into memory as {options.decoder_format} weights, where it is "
            "packed before it is written; q4 takes the least."
        ) from None
    write_packed(destination, recorded_contents(recording, options))


def check_destination(source: ModelSource, destination: Path, force: bool) -> None:
    """Refuse to write over the model itself, over a folder, or over anything without `force`."""
    if destination.is_dir():
        raise RequestError(f"{destination} is a folder; the destination is a file.")
    own = {os.path.realpath(path) for path in (source.path, *source.weight_files())}
    if os.path.realpath(destination) in own:
        raise RequestError(f"{destination} is the model itself, which would be lost.")
    if destination.exists() and not destination.is_file():
        raise RequestError(f"{destination} is no ordinary file, which alone can be replaced.")
    if destination.exists() and not force:
        raise RequestError(f"{destination} exists; --force replaces it.")
    if not destination.parent.is_dir():
        raise RequestError(f"{destination} would lie in a folder that does not exist.")
