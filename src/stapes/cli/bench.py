"""`stapes bench`: figures that anyone can measure again."""

from __future__ import annotations

import click

from stapes.cli import (
    bench_asr,
    bench_decoder,
    bench_draft,
    bench_drift,
    bench_fidelity,
    bench_kernels,
    bench_load,
    bench_long,
    bench_serve,
    bench_speak,
    bench_startup,
    bench_stream,
    bench_tokenize,
)


@click.group(short_help="Measure the runtime.")
def command() -> None:
    """Measure the runtime; the last line printed is one JSON object.

    Do not run anything else meanwhile. Figures are medians of several rounds; those that are
    compared are measured in turn.
    """


_MODULES = (
    bench_asr,
    bench_decoder,
    bench_draft,
    bench_drift,
    bench_fidelity,
    bench_kernels,
    bench_load,
    bench_long,
    bench_serve,
    bench_speak,
    bench_startup,
    bench_stream,
    bench_tokenize,
)
for _module in _MODULES:
    command.add_command(_module.command)
