"""`stapes bench speak`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stapes.cli.bench_options import instruction_set_option, json_option, rounds_option, show
from stapes.cli.parameters import threads_option, trace_option
from stapes.cli.tracing import tracing
from stapes.options import WEIGHT_FORMATS

if TYPE_CHECKING:
    from stapes.bench.speak import Peer, SpeakBench


@click.command("speak")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=120),
    default=4.0,
    show_default=True,
    help="Length of the sound to make.",
)
@click.option(
    "--prompt-seconds",
    type=click.FloatRange(min=0.1, max=120),
    default=3.0,
    show_default=True,
    help="Length of the voice's recording.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1, max=1000),
    default=32,
    show_default=True,
    help="Steps of flow matching.",
)
@click.option(
    "--weights",
    type=click.Choice(WEIGHT_FORMATS),
    default="bf16",
    show_default=True,
    help="Format of the matrices in memory.",
)
@threads_option
@instruction_set_option
@rounds_option
@click.option(
    "--versus", type=click.Choice(["torch"]), help="Run the same stages there too, in turn."
)
@trace_option
@json_option
def command(
    seconds: float,
    prompt_seconds: float,
    steps: int,
    weights: str,
    threads: int | None,
    instruction_set: str,
    rounds: int,
    versus: str | None,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Make sound of random codes with full-size stages: flow matching, then the vocoder.

    The weights are random, and so is the sound: noise. The stages are those of Vevo2.
    """
    from stapes.bench.speak import SpeakBench, run
    from stapes.graph import NO_TRACE
    from stapes.models.vevo2.acoustic.flow_matching import FlowOptions

    bench = SpeakBench(
        *(seconds, prompt_seconds, FlowOptions(steps)),
        weights,  # type: ignore[arg-type]
        *(threads, instruction_set),
    )
    with tracing(trace) as tracer:
        result = run(bench, rounds, _peer(versus), tracer or NO_TRACE)
    show(result, as_json)


def _peer(versus: str | None) -> Callable[[SpeakBench], Peer] | None:
    if versus is None:
        return None
    from stapes.bench.versus_speak import TorchSpeak

    return TorchSpeak
