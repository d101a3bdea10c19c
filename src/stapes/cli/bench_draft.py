"""`stapes bench draft`."""

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


@click.command("draft")
@synthetic_option
@click.option(
    "--positions",
    type=click.IntRange(min=1, max=60000),
    default=400,
    show_default=True,
    help="Positions of the prompt, which is in the cache.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=2, max=4096),
    default=64,
    show_default=True,
    help="Ids of the answer, all of them guessed.",
)
@runtime_options
@instruction_set_option
@rounds_option
@json_option
def command(
    synthetic: str,
    positions: int,
    tokens: int,
    instruction_set: str,
    rounds: int,
    as_json: bool,
    **runtime: object,
) -> None:
    """An answer that was guessed right, against decoding it id by id."""
    from stapes.bench.draft import DraftBench, run

    options = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    show(run(DraftBench(synthetic, positions, tokens, options, rounds, instruction_set)), as_json)
