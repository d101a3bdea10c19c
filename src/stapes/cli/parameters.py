"""Command-line options that several commands share, derived from the options of the runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from stapes.api import DEFAULT_MODEL
from stapes.options import KV_FORMATS, WEIGHT_FORMATS, RuntimeOptions

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

model_option = click.option(
    "--model",
    default=DEFAULT_MODEL,
    show_default=True,
    metavar="MODEL",
    help="Name of a bundled model, or a folder with a Qwen3-ASR checkpoint.",
)

threads_option = click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="what the CPU affinity and quota allow",
    help="Worker threads.",
)

_RUNTIME = (
    click.option(
        "--weights",
        type=click.Choice(WEIGHT_FORMATS),
        default=RuntimeOptions.weights,
        show_default=True,
        help="Format of the matrices in memory.",
    ),
    click.option(
        "--kv",
        type=click.Choice(KV_FORMATS),
        default=RuntimeOptions.kv,
        show_default=True,
        help="Format of the KV cache.",
    ),
    threads_option,
)


trace_option = click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write where the time went to FILE, as a Chrome trace.",
)


def runtime_options(command: Decorated) -> Decorated:
    """Add --weights, --kv and --threads, the fields of RuntimeOptions, in this order."""
    for option in reversed(_RUNTIME):
        command = option(command)
    return command
