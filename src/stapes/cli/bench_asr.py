"""`stapes bench asr`."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stapes.cli.bench_options import json_option, rounds_option, show, synthetic_option
from stapes.cli.parameters import runtime_options, trace_option
from stapes.cli.tracing import tracing
from stapes.options import RuntimeOptions

if TYPE_CHECKING:
    from stapes.bench.asr import AsrBench
    from stapes.graph import Tracer


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
    rounds: int,
    versus: str | None,
    trace: Path | None,
    as_json: bool,
    **runtime: object,
) -> None:
    """Transcribe noise with a full-size model: seconds of every stage, from mel to last token."""
    from stapes.bench.asr import AsrBench

    bench = AsrBench(synthetic, seconds, tokens, RuntimeOptions(**runtime))  # type: ignore[arg-type]
    with tracing(trace) as tracer:
        result = _measure(bench, rounds, versus, tracer)
    show(result, as_json)


def _measure(
    bench: AsrBench, rounds: int, versus: str | None, tracer: Tracer | None
) -> dict[str, object]:
    from stapes.bench.asr import build, median_figures, noise, report, run_once
    from stapes.graph import NO_TRACE

    networks, load_s = build(bench, tracer or NO_TRACE)
    samples = noise(bench.seconds)
    peer = None
    if versus:
        from stapes.bench.versus import TransformersAsr

        peer = TransformersAsr(bench)
        peer.run(samples[:16000])
    run_once(bench, networks, samples[:16000])  # the first run pays for memory that later ones find
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(run_once(bench, networks, samples))
        if peer:
            theirs.append(peer.run(samples))
    result = report(bench, median_figures(ours), load_s)
    if peer:
        ratios = [there / here.total_s for here, there in zip(ours, theirs, strict=True)]
        result["versus"] = {
            "transformers": {
                "total_s": round(statistics.median(theirs), 3),
                "ratio": round(statistics.median(ratios), 3),
            }
        }
    return result
