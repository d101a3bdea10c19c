"""`stapes bench serve`."""

from __future__ import annotations

import click

from stapes.cli.bench_options import (
    instruction_set_option,
    json_option,
    show,
    synthetic_option,
)
from stapes.cli.parameters import runtime_options
from stapes.options import RuntimeOptions


@click.command("serve")
@synthetic_option
@click.option(
    "--clients",
    type=click.IntRange(1, 256),
    default=32,
    show_default=True,
    help="Clients that ask at once.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=3600),
    default=60.0,
    show_default=True,
    help="How long they ask; one client alone is measured for a third of that.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=2, max=4096),
    default=128,
    show_default=True,
    help="One of so many ids ends an answer; clips of 2 to 12 s end it after 64 to 224.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, 256),
    show_default="by threads and free memory",
    help="Requests that run side by side.",
)
@runtime_options
@instruction_set_option
@json_option
def command(
    synthetic: str,
    clients: int,
    seconds: float,
    tokens: int,
    parallel: int | None,
    instruction_set: str,
    as_json: bool,
    **runtime: object,
) -> None:
    """The server's throughput with many clients, against one client."""
    from stapes.bench.serve import ServeBench, run

    options = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    bench = ServeBench(synthetic, clients, seconds, tokens, parallel, options, instruction_set)
    show(run(bench), as_json)
