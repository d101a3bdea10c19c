"""`stapes info`: what a model is and what it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from stapes.cli import stdout
from stapes.cli.parameters import encoder_weights_option, kv_option, weights_option
from stapes.cli.progress import reporter_for_stderr
from stapes.options import KvFormat, RuntimeOptions, WeightFormat


@click.command("info", short_help="Tell what a model is and what it needs.")
@click.argument("model", metavar="MODEL")
@weights_option
@encoder_weights_option
@kv_option
@click.option(
    "--hash/--no-hash",
    "hash_",
    default=True,
    show_default=True,
    help="Read the files of weights and print their SHA-256.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    model: str,
    weights: WeightFormat | None,
    encoder_weights: WeightFormat | None,
    kv: KvFormat,
    hash_: bool,
    as_json: bool,
) -> None:
    """Tell a model's architecture, sizes, formats, the memory it needs, and its files' hashes.

    MODEL is the name of a bundled model or of one of the hub, a folder, a converted file or a GGUF
    file; all of its headers are checked. Of all but a converted file the memory is told for the
    given formats.
    """
    from stapes.cli.ready import original_model
    from stapes.models.description import describe
    from stapes.models.registry import find_model

    options = RuntimeOptions(weights, kv, None, encoder_weights)
    result = describe(find_model(original_model(model)), options)
    if hash_:
        _add_hashes(result["files"])
    if as_json:
        stdout.lines([json.dumps(result)])
    else:
        stdout.lines(_lines(result))


def _add_hashes(files: list[dict[str, Any]]) -> None:
    from stapes.models.description import sha256

    reporter = reporter_for_stderr()
    for file in files:
        with reporter.hashing(file["file"], file["bytes"]) as on_progress:
            file["sha256"] = sha256(Path(file["file"]), on_progress)


def _lines(result: dict[str, Any], prefix: str = "") -> list[str]:
    """A line for each number or text; those of an inner object begin with its name."""
    lines: list[str] = []
    for name, value in result.items():
        if isinstance(value, dict):
            lines += _lines(value, f"{prefix}{name} ")
        elif isinstance(value, list):
            lines += [line for entry in value for line in _lines(entry)]
        elif value is not None:
            lines.append(f"{prefix + name:40} {_shown(name, value)}")
    return lines


def _shown(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and "bytes" in name:
        return f"{value} ({_scaled(value)}B)"
    return f"{value} ({_scaled(value)})" if name == "parameters" else str(value)


def _scaled(value: Any) -> str:
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.1f} {letter}"
    return f"{value} "
