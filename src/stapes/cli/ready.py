"""Models of the hub by name: downloaded and converted once, said on standard error."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stapes.cli import messages
from stapes.cli.progress import reporter_for_stderr
from stapes.cli.terminable import terminable
from stapes.errors import CapacityError, RequestError
from stapes.options import RuntimeOptions

if TYPE_CHECKING:
    from stapes.models.converted_cache import ConvertedCache
    from stapes.models.hub import HubName


def converted_cache() -> ConvertedCache:
    """Where converted models are kept: below STAPES_CACHE, else in the user's folder of caches."""
    from stapes.models.converted_cache import ConvertedCache

    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    chosen = os.environ.get("STAPES_CACHE") or os.path.join(caches, "stapes")
    return ConvertedCache(Path(os.path.expanduser(chosen), "converted"))


def ready_model(model: str, options: RuntimeOptions, kinds: Iterable[str]) -> str:
    """What `stapes.load` takes for a model: of the hub's, a converted file, made if need be.

    Args:
        model: as the user gave it; anything but a name of the hub is returned as it is.
        options: the formats of the converted file.
        kinds: supported values of config.json's model_type.

    Raises:
        ModelError: it cannot be fetched, or is of another kind.
        CapacityError: the disk of the hub's cache is full.
    """
    from stapes.models.registry import hub_name

    name = hub_name(model)
    if name is None:
        return model
    kept = converted_cache().find(name, options)
    return str(kept or converted(name, downloaded(name, tuple(kinds)), options))


def ready_voice(model: str) -> str:
    """What `stapes.load_voice` takes: of the hub's, the folder in its cache, downloaded if need be.

    Raises:
        ModelError, CapacityError: see `ready_model`.
    """
    from stapes.models.registry import hub_name
    from stapes.models.vevo2 import published

    name = hub_name(model)
    if name is None or name.file is not None:
        return model
    found = published.find(name.repository)
    if found is None:
        with _downloading(f"{name} and {published.WHISPER}"):
            found = published.fetch(name.repository)
    return str(found)


def original_model(model: str) -> str:
    """A model before it is converted: of the hub's, what is in its cache, downloaded if need be.

    Raises:
        ModelError, CapacityError: see `ready_model`.
    """
    from stapes.models.registry import ALL, hub_name

    name = hub_name(model)
    return model if name is None else str(downloaded(name, tuple(ALL)))


def downloaded(name: HubName, kinds: tuple[str, ...], *, newest: bool = False) -> Path:
    """The model as the hub has it: what the cache holds, unless the newest is asked for."""
    from stapes.models import hub
    from stapes.models.registry import check_kind, model_type, open_source
    from stapes.models.vevo2 import published

    original = None if newest else hub.find(name) or published.find(name.repository)
    if original is None:
        with _downloading(str(name)):
            original = hub.fetch(name, lambda folder: check_kind(folder, kinds))
    model_type(open_source(original), kinds)
    return original


@contextmanager
def _downloading(what: str) -> Iterator[None]:
    """Say that a download begins, and keep the hub's client from saying more."""
    from huggingface_hub import constants

    # What the client logs and warns of is told by our errors, in a sentence each.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    messages.note(f"downloading {what} from {constants.ENDPOINT}")
    with warnings.catch_warnings(action="ignore"):
        yield


def converted(name: HubName, original: Path, options: RuntimeOptions) -> Path:
    """The converted file of a model; the original where no file can be kept, which is said."""
    cache = converted_cache()
    messages.note(f"converting {name} to {_formats(options)} once, into {cache.folder}")
    try:
        with terminable(), reporter_for_stderr().converting(str(name)):
            return cache.keep(name, original, options)
    except (CapacityError, RequestError) as error:
        messages.warning(str(name), f"used as it was downloaded, which takes longer: {error}")
        return original


def _formats(options: RuntimeOptions) -> str:
    decoder, encoder = options.decoder_format, options.encoder_format
    return decoder if encoder == decoder else f"{decoder} with an encoder in {encoder}"
