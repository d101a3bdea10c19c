"""`stapes bench decoder`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stapes.cli import messages
from stapes.cli.bench_options import (
    instruction_set_option,
    json_option,
    rounds_option,
    show,
    synthetic_decoder_option,
)
from stapes.cli.parameters import runtime_options, trace_option
from stapes.cli.tracing import tracing
from stapes.options import RuntimeOptions

if TYPE_CHECKING:
    from stapes.bench.decoder import DecoderBench, Peer


@click.command("decoder")
@synthetic_decoder_option
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
@instruction_set_option
@rounds_option
@click.option(
    "--versus",
    type=click.Choice(["transformers"]),
    help="Run the same work there too, in turn.",
)
@trace_option
@json_option
def command(
    synthetic: str,
    positions: int,
    batch: int,
    prefill_rows: int,
    instruction_set: str,
    rounds: int,
    versus: str | None,
    trace: Path | None,
    as_json: bool,
    **runtime: object,
) -> None:
    """Decode steps and prefill of a full-size decoder, against memory and sgemm.

    vevo2-ar is also measured as it is used, with ids that are drawn.
    """
    from stapes.bench.decoder import DecoderBench, run
    from stapes.graph import NO_TRACE

    options = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    sizes = (positions, batch, prefill_rows)
    bench = DecoderBench(synthetic, *sizes, options, rounds, instruction_set)
    with tracing(trace) as tracer:
        result = run(bench, _peer(versus), tracer or NO_TRACE, messages.note)
    show(result, as_json)


def _peer(versus: str | None) -> Callable[[DecoderBench], Peer] | None:
    if versus is None:
        return None
    from stapes.bench.versus_decoder import TransformersDecoder

    return TransformersDecoder
