"""`stapes models`: what is on this machine, and getting rid of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stapes.cli import messages, stdout
from stapes.cli.exits import DONE
from stapes.cli.parameters import encoder_weights_option, packing_option, threads_option
from stapes.cli.ready import converted, converted_cache, downloaded
from stapes.errors import RequestError
from stapes.options import RuntimeOptions, WeightFormat

if TYPE_CHECKING:
    from stapes.models.hub import HubName
    from stapes.models.library import Entry


@click.group(
    "models", invoke_without_command=True, short_help="List, fetch and remove models by name."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the models that can be named: bundled, downloaded from the hub, and converted.

    A name such as Qwen/Qwen3-ASR-0.6B, or OWNER/NAME/FILE.gguf, is one of the Hugging Face hub. The
    first use downloads it into the hub's own cache and converts it once for each format of weights;
    later uses load the converted file and ask no server. Converted files are kept in STAPES_CACHE,
    by default $XDG_CACHE_HOME/stapes or ~/.cache/stapes. The hub's own variables hold: HF_TOKEN for
    private models, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE.
    """
    if context.invoked_subcommand is not None:
        return
    from stapes.models.library import entries

    found = entries(converted_cache())
    if as_json:
        stdout.lines([json.dumps({"models": [_to_object(entry) for entry in found]})])
    else:
        stdout.lines(_table(found))


@command.command("fetch", short_help="Download a model, or its newest revision, and convert it.")
@click.argument("name", metavar="NAME")
@packing_option
@encoder_weights_option
@threads_option
def fetch(
    name: str,
    weights: WeightFormat,
    encoder_weights: WeightFormat | None,
    threads: int | None,
) -> int:
    """Download the newest revision of a model of the hub, and convert it, before it is used."""
    from stapes.models.registry import ALL, hub_name

    found = hub_name(name)
    if found is None:
        raise RequestError(f"{name!r} is no name of the hub: OWNER/NAME or OWNER/NAME/FILE.gguf.")
    options = RuntimeOptions(weights, threads=threads, encoder_weights=encoder_weights)
    original = downloaded(found, tuple(ALL), newest=True)
    file = converted_cache().find(found, options) or converted(found, original, options)
    messages.note(f"{found} is ready: {file}")
    return DONE


@command.command("remove", short_help="Remove a model from the caches.")
@click.argument("name", metavar="NAME")
@click.option("--converted", "only_converted", is_flag=True, help="Keep the download.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(name: str, only_converted: bool, yes: bool) -> int:
    """Remove a repository of the hub: what was downloaded and what was converted of it."""
    from stapes.models.library import entries
    from stapes.models.library import remove as remove_from

    cache = converted_cache()
    repository = _repository(name, entries(cache))
    theirs = [
        entry
        for entry in entries(cache)
        if _is_of(entry, repository) and not (only_converted and entry.where != "converted")
    ]
    if not theirs:
        raise RequestError(f"nothing of {repository} is there to be removed.")
    places = ", ".join(dict.fromkeys(map(_where, theirs)))
    size = _size(sum(entry.size_bytes for entry in theirs))
    if not yes and not _confirmed(f"Remove {repository}, {size} ({places})?"):
        messages.note(f"{repository} was kept.")
        return DONE
    remove_from(repository, cache, keep_download=only_converted)
    messages.note(f"removed {repository}, {size} ({places})")
    return DONE


def _repository(name: str, found: Sequence[Entry]) -> str:
    """The repository that is meant by a name."""
    if any(entry.name == name and entry.where == "bundled" for entry in found):
        raise RequestError(f"{name} is a part of stapes, and stays.")
    parsed = _parse(name)
    if parsed is None:
        raise RequestError(f"{name!r} is no name of the hub: OWNER/NAME.")
    if parsed.file is not None:
        raise RequestError(
            f"{name} is one file of a repository; {parsed.repository} can be removed as a whole."
        )
    return parsed.repository


def _parse(name: str) -> HubName | None:
    from stapes.models.hub import parse_name

    return parse_name(name)


def _is_of(entry: Entry, repository: str) -> bool:
    parsed = _parse(entry.name)
    return parsed is not None and parsed.repository == repository


def _confirmed(question: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise RequestError("nobody is there to be asked: --yes removes without a question.")
    return click.confirm(question, err=True)


# -- what is shown -------------------------------------------------------------------------------


def _to_object(entry: Entry) -> dict[str, object]:
    """The object of a model; names and order of its fields are part of the interface."""
    formats = entry.formats
    return {
        "name": entry.name,
        "kind": entry.kind,
        "where": entry.where,
        "formats": None if formats is None else dict(zip(_PARTS, formats, strict=True)),
        "complete": entry.is_complete,
        "bytes": entry.size_bytes,
        "path": str(entry.path),
    }


_PARTS = ("decoder", "encoder")


def _table(found: Sequence[Entry]) -> list[str]:
    head = ("NAME", "KIND", "SIZE", "WHERE")
    rows = [(e.name, e.kind, _size(e.size_bytes), _where(e)) for e in found]
    name, kind, size, _ = (max(map(len, column)) for column in zip(head, *rows, strict=True))
    return [f"{a:{name}}  {b:{kind}}  {c:>{size}}  {d}" for a, b, c, d in (head, *rows)]


def _where(entry: Entry) -> str:
    if entry.formats is None:
        return entry.where if entry.is_complete else f"{entry.where}, incomplete"
    decoder, encoder = entry.formats
    shown = decoder if encoder == decoder else f"{decoder}, encoder {encoder}"
    return f"{entry.where} ({shown})"


def _size(size: int) -> str:
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{size / unit:.1f} {letter}B"
    return f"{size} B"
