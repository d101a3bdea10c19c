"""`stapes bench decoder`."""

from __future__ import annotations

import click

from stapes.cli.bench_options import json_option, rounds_option, show, synthetic_option
from stapes.cli.parameters import runtime_options
from stapes.options import RuntimeOptions


@click.command("decoder")
@synthetic_option
@click.option(
    "--positions",
    type=click.IntRange(min=1, max=60000),
    default=400,
    show_default=True,
    help="Positions that each sequence's cache holds.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1, max=256),
    default=1,
    show_default=True,
    help="Sequences decoded side by side.",
)
@click.option(
    "--prefill-rows",
    type=click.IntRange(min=1, max=60000),
    default=406,
    show_default=True,
    help="Rows of the prefill that is measured.",
)
@runtime_options
@rounds_option
@json_option
def command(
    synthetic: str,
    positions: int,
    batch: int,
    prefill_rows: int,
    rounds: int,
    as_json: bool,
    **runtime: object,
) -> None:
    """Decode steps and prefill of a full-size decoder, against memory and sgemm."""
    from stapes.bench.decoder import DecoderBench, run

    options = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    show(run(DecoderBench(synthetic, positions, batch, prefill_rows, options, rounds)), as_json)
