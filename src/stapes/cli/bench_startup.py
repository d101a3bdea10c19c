"""`stapes bench startup`."""

from __future__ import annotations

import click

from stapes.cli.bench_options import json_option, rounds_option, show


@click.command("startup")
@rounds_option
@json_option
def command(rounds: int, as_json: bool) -> None:
    """Start processes that import numpy, import stapes, and print the help."""
    from stapes.bench.startup import run

    show(run(rounds), as_json)
