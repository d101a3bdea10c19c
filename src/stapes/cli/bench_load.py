"""`stapes bench load`."""

from __future__ import annotations

import click

from stapes.cli import messages
from stapes.cli.bench_options import SYNTHETIC_NAMES, json_option, rounds_option, show
from stapes.cli.parameters import threads_option
from stapes.errors import RequestError
from stapes.options import WEIGHT_FORMATS


@click.command("load")
@click.option(
    "--model",
    metavar="MODEL",
    help="Name of a bundled model, a folder with a Qwen3-ASR checkpoint, or a converted file.",
)
@click.option(
    "--synthetic",
    type=click.Choice(SYNTHETIC_NAMES),
    help="Instead: a converted file of this size, made with random weights (takes disk space).",
)
@click.option(
    "--weights",
    type=click.Choice(WEIGHT_FORMATS),
    show_default="a converted file's own, else q8",
    help="Format of the matrices.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1, max=30),
    default=10.0,
    show_default=True,
    help="Noise to transcribe before the memory is read.",
)
@threads_option
@rounds_option
@json_option
def command(
    model: str | None,
    synthetic: str | None,
    weights: str | None,
    seconds: float,
    threads: int | None,
    rounds: int,
    as_json: bool,
) -> None:
    """Start processes that load a model: seconds until it is ready, and resident memory."""
    from stapes.bench.load import LoadBench, converted, run

    options: dict[str, object] = {"threads": threads}
    if model is not None and synthetic is None:
        options |= {"weights": weights} if weights else {}
        result = run(LoadBench(model, options, seconds, rounds))
    elif synthetic is not None and model is None:
        with converted(synthetic, weights or "q8", messages.note) as file:
            result = run(LoadBench(file, options, seconds, rounds))
    else:
        raise RequestError("Name either a --model or a --synthetic size.")
    show(result, as_json)
