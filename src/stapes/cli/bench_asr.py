"""`stapes bench asr`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stapes.cli.bench_options import (
    instruction_set_option,
    json_option,
    rounds_option,
    show,
    synthetic_option,
)
from stapes.cli.parameters import runtime_options, trace_option
from stapes.cli.tracing import tracing
from stapes.options import RuntimeOptions

if TYPE_CHECKING:
    from stapes.bench.asr import AsrBench, Peer


@click.command("asr")
@synthetic_option
@click.option(
    "--seconds",
    type=click.FloatRange(min=1, max=1200),
    default=30.0,
    show_default=True,
    help="Length of the audio.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1, max=4096),
    default=64,
    show_default=True,
    help="New tokens to decode.",
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
    seconds: float,
    tokens: int,
    instruction_set: str,
    rounds: int,
    versus: str | None,
    trace: Path | None,
    as_json: bool,
    **runtime: object,
) -> None:
    """Transcribe noise with a full-size model: seconds of every stage, from mel to last token."""
    from stapes.bench.asr import AsrBench, run
    from stapes.graph import NO_TRACE

    options = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    bench = AsrBench(synthetic, seconds, tokens, options, instruction_set)
    with tracing(trace) as tracer:
        result = run(bench, rounds, _peer(versus), tracer or NO_TRACE)
    show(result, as_json)


def _peer(versus: str | None) -> Callable[[AsrBench], Peer] | None:
    if versus is None:
        return None
    from stapes.bench.versus import TransformersAsr

    return TransformersAsr
