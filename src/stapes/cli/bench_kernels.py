"""`stapes bench kernels`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stapes.cli.bench_options import instruction_set_option, json_option, rounds_option, show
from stapes.cli.parameters import activation_bits_option, threads_option, trace_option
from stapes.cli.tracing import tracing
from stapes.options import WEIGHT_FORMATS, ActivationBits

if TYPE_CHECKING:
    from stapes.bench.kernels import KernelBench, Peer


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
@instruction_set_option
@click.option(
    "--versus",
    type=click.Choice(["numpy", "ggml"]),
    multiple=True,
    help="Run the same layer there too, in turn; may be given several times.",
)
@threads_option
@activation_bits_option
@rounds_option
@trace_option
@json_option
def command(
    formats: tuple[str, ...],
    rows: tuple[int, ...],
    out_features: int,
    in_features: int,
    instruction_set: str,
    versus: tuple[str, ...],
    threads: int | None,
    activation_bits: ActivationBits | None,
    rounds: int,
    trace: Path | None,
    as_json: bool,
) -> None:
    """One linear layer in every format, as shares of the streaming read and of sgemm."""
    from stapes.bench.kernels import KernelBench, run
    from stapes.graph import NO_TRACE

    bits = activation_bits or 13
    bench = KernelBench(
        out_features, in_features, rows, formats, threads, instruction_set, rounds, bits
    )
    peers = [_peer(name) for name in dict.fromkeys(versus)]
    with tracing(trace) as tracer:
        result = run(bench, peers, tracer or NO_TRACE)
    show(result, as_json)


def _peer(name: str) -> Callable[[KernelBench, int], Peer]:
    if name == "numpy":
        from stapes.bench.versus_numpy import NumpyPeer

        return NumpyPeer
    from stapes.bench.versus_ggml import GgmlPeer

    return GgmlPeer
