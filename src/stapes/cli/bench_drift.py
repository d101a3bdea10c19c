"""`stapes bench drift`."""

from __future__ import annotations

import click

from stapes.cli import messages
from stapes.cli.bench_options import json_option, show
from stapes.cli.parameters import kv_option, threads_option
from stapes.options import WEIGHT_FORMATS, KvFormat, WeightFormat


@click.command("drift")
@click.option(
    "--model",
    metavar="FOLDER",
    show_default="a model of its size with random weights",
    help="The published folder of Vevo2.",
)
@click.option(
    "--weights",
    type=click.Choice(WEIGHT_FORMATS),
    multiple=True,
    default=("f32", "bf16", "q8", "q4"),
    show_default=True,
    help="Format of the matrices; may be given several times.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1, max=256),
    default=8,
    show_default=True,
    help="Answers of each format.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1, max=500),
    default=60,
    show_default=True,
    help="Most ids of an answer.",
)
@kv_option
@threads_option
@json_option
def command(
    model: str | None,
    weights: tuple[WeightFormat, ...],
    seeds: int,
    tokens: int,
    kv: KvFormat,
    threads: int | None,
    as_json: bool,
) -> None:
    """How soon weight formats draw other codes than f32 does, with Vevo2's decoder.

    The same seeds are drawn with each format; f32 weights with an f32 cache come first and are the
    measure.
    """
    from stapes.bench.drift import DriftBench, run

    bench = DriftBench(weights, seeds, tokens, kv, threads, model)
    show(run(bench, messages.note), as_json)
