"""`stapes bench long`."""

from __future__ import annotations

import click

from stapes.cli.bench_options import (
    instruction_set_option,
    json_option,
    rounds_option,
    show,
    synthetic_option,
)
from stapes.cli.parameters import runtime_options
from stapes.options import RuntimeOptions


@click.command("long")
@synthetic_option
@click.option(
    "--pieces",
    type=click.IntRange(min=2, max=1000),
    default=120,
    show_default=True,
    help="Pieces of the recording; 120 of 30 s are an hour.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1, max=60),
    default=30.0,
    show_default=True,
    help="Length of each piece.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1, max=512),
    default=128,
    show_default=True,
    help="New tokens of each piece; 30 s of fast speech have about 128.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1, max=64),
    show_default="up to 16, by the free memory",
    help="Pieces decoded side by side.",
)
@runtime_options
@instruction_set_option
@rounds_option
@json_option
def command(
    synthetic: str,
    pieces: int,
    seconds: float,
    tokens: int,
    batch: int | None,
    instruction_set: str,
    rounds: int,
    as_json: bool,
    **runtime: object,
) -> None:
    """Pieces of a long recording side by side, against the same pieces one after another."""
    from stapes.bench.long import LongBench, run

    options = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    bench = LongBench(synthetic, pieces, seconds, tokens, batch, options, instruction_set)
    show(run(bench, rounds), as_json)
