"""`stapes bench kernels`."""

from __future__ import annotations

import click

from stapes.cli.bench_options import json_option, rounds_option, show
from stapes.cli.parameters import threads_option
from stapes.options import WEIGHT_FORMATS


@click.command("kernels")
@click.option(
    "--format",
    "formats",
    type=click.Choice(WEIGHT_FORMATS),
    multiple=True,
    default=WEIGHT_FORMATS,
    help="Weight format; may be given several times. All by default.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1, max=4096),
    multiple=True,
    default=(1, 4, 8, 24, 512),
    show_default=True,
    help="Rows; may be given several times.",
)
@click.option("--out", "out_features", type=click.IntRange(min=1), default=3072, show_default=True)
@click.option("--in", "in_features", type=click.IntRange(min=1), default=1024, show_default=True)
@click.option(
    "--instruction-set",
    default="auto",
    show_default=True,
    help="avx512, avx2 or portable; auto takes the best that is there.",
)
@threads_option
@rounds_option
@json_option
def command(
    formats: tuple[str, ...],
    rows: tuple[int, ...],
    out_features: int,
    in_features: int,
    instruction_set: str,
    threads: int | None,
    rounds: int,
    as_json: bool,
) -> None:
    """One linear layer in every format, as shares of the streaming read and of sgemm."""
    from stapes.bench.kernels import KernelBench, run

    bench = KernelBench(out_features, in_features, rows, formats, threads, instruction_set, rounds)
    show(run(bench), as_json)
