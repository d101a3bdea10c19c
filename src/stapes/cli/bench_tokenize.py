"""`stapes bench tokenize`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from stapes.cli.bench_options import instruction_set_option, json_option, rounds_option, show
from stapes.cli.parameters import threads_option, trace_option
from stapes.cli.tracing import tracing
from stapes.options import WEIGHT_FORMATS, WeightFormat

if TYPE_CHECKING:
    from stapes.bench.tokenize import Peer, TokenizeBench


@click.command("tokenize")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.02, max=600),
    default=10.0,
    show_default=True,
    help="Length of the recording.",
)
@click.option(
    "--weights",
    type=click.Choice(WEIGHT_FORMATS),
    default="f32",
    show_default=True,
    help="Format of the matrices in memory.",
)
@threads_option
@instruction_set_option
@rounds_option
@click.option(
    "--versus", type=click.Choice(["torch"]), help="Run the same networks there too, in turn."
)
@trace_option
@json_option
def command(
    seconds: float,
    weights: str,
    threads: int | None,
    instruction_set: str,
    rounds: int,
    versus: str | None,
    trace: Path | None,
    as_json: bool,
) -> None:
    """A recording's codes at Vevo2's full size: Whisper's encoder and the two tokenizers.

    Weights and features are random; the chromagram's own computation is not measured.
    """
    from stapes.bench.tokenize import TokenizeBench, run
    from stapes.graph import NO_TRACE

    bench = TokenizeBench(seconds, cast(WeightFormat, weights), threads, instruction_set)
    with tracing(trace) as tracer:
        result = run(bench, rounds, _peer() if versus else None, tracer or NO_TRACE)
    show(result, as_json)


def _peer() -> Callable[[TokenizeBench], Peer]:
    from stapes.bench.versus_tokenize import TorchTokenizers

    return TorchTokenizers
