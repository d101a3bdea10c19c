"""`stapes bench stream`."""

from __future__ import annotations

from pathlib import Path

import click

from stapes.cli.bench_options import instruction_set_option, json_option, show, synthetic_option
from stapes.cli.parameters import runtime_options
from stapes.errors import RequestError
from stapes.options import RuntimeOptions


@click.command("stream")
@synthetic_option
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A recording, heard over and over, in place of noise and random weights.",
)
@click.option(
    "--model", metavar="MODEL", show_default="tiny-en", help="The model that hears the FILE."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=4, max=36_000),
    default=600.0,
    show_default=True,
    help="Length of the stream.",
)
@click.option(
    "--compared",
    type=click.FloatRange(min=4, max=300),
    default=60.0,
    show_default=True,
    help="Second of the stream at which everything is computed anew, too.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1, max=64),
    default=8,
    show_default=True,
    help="New tokens of a step of 2 s, with random weights; fast speech has about 8.",
)
@runtime_options
@instruction_set_option
@json_option
def command(
    synthetic: str,
    file: Path | None,
    model: str | None,
    seconds: float,
    compared: float,
    tokens: int,
    instruction_set: str,
    as_json: bool,
    **runtime: object,
) -> None:
    """A live stream: what a step costs in its second and in its last minute, and memory there.

    A step at one point is compared with encoding and prefilling everything up to there anew: once
    as the stream takes it, whose old utterances have left the context, and once with the whole
    context kept from the beginning, which gives the same ids.

    With random weights an answer changes with every step, so that hardly any draft is right: the
    figures are those of a bad case. With --file they are those of a model and a recording.
    """
    from stapes.bench.stream import StreamBench, run

    if model is not None and file is None:
        raise RequestError("--model needs a --file to hear.")
    options = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    show(
        run(
            StreamBench(synthetic, model, file, seconds, compared, tokens, options, instruction_set)
        ),
        as_json,
    )
