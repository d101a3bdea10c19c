"""`stapes bench`: figures that anyone can measure again."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stapes.cli.parameters import runtime_options, trace_option
from stapes.cli.tracing import tracing
from stapes.options import RuntimeOptions

if TYPE_CHECKING:
    from stapes.bench.asr import AsrBench
    from stapes.graph import Tracer

#: Kept here, since --help must not import what knows the sizes; a test compares the two.
SYNTHETIC_NAMES = ("qwen3-asr-0.6b", "qwen3-asr-1.7b")


@click.group()
def command() -> None:
    """Measure the runtime; the last line printed is one JSON object."""


@command.command()
@click.option(
    "--synthetic",
    type=click.Choice(SYNTHETIC_NAMES),
    default=SYNTHETIC_NAMES[0],
    show_default=True,
    help="Size of the model, built with random weights in memory.",
)
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
@click.option(
    "--rounds",
    type=click.IntRange(min=1, max=100),
    default=3,
    show_default=True,
    help="Runs; figures are their medians.",
)
@click.option(
    "--versus",
    type=click.Choice(["transformers"]),
    help="Run the same work there too, in turn.",
)
@trace_option
@click.option("--json", "as_json", is_flag=True, help="Print the JSON object only.")
def asr(
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
    if not as_json:
        _print_table(result)
    click.echo(json.dumps(result))


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


def _print_table(result: dict[str, object]) -> None:
    for name, value in result.items():
        if not isinstance(value, dict):
            click.echo(f"{name:22} {value}")
            continue
        for peer, figures in value.items():
            click.echo(f"versus {peer:15} {figures['total_s']} s, {figures['ratio']} x our time")
