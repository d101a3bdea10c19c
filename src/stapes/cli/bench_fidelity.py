"""`stapes bench fidelity`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stapes.cli import messages
from stapes.cli.bench_options import json_option, show
from stapes.cli.parameters import activation_bits_option, kv_option, threads_option
from stapes.options import WEIGHT_FORMATS, ActivationBits, KvFormat, WeightFormat

if TYPE_CHECKING:
    from stapes.bench.fidelity import FidelityBench, Peer


@click.command("fidelity")
@click.option(
    "--model",
    required=True,
    metavar="MODEL",
    help="A text model: a folder with a Qwen2 or Qwen3 checkpoint, or a GGUF file.",
)
@click.option(
    "--weights",
    type=click.Choice(WEIGHT_FORMATS),
    multiple=True,
    default=("f32", "q8", "q4"),
    show_default=True,
    help="Format of the matrices; may be given several times. f32 is always measured.",
)
@click.option(
    "--text",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    show_default="one of 3,284 tokens that comes with the package",
    help="Text to be read.",
)
@click.option(
    "--window",
    type=click.IntRange(min=2, max=32768),
    default=512,
    show_default=True,
    help="Tokens of the text that are read together.",
)
@click.option(
    "--stride",
    type=click.IntRange(min=1, max=32767),
    default=256,
    show_default=True,
    help="Tokens from one window to the next.",
)
@kv_option
@threads_option
@activation_bits_option
@click.option(
    "--versus",
    type=click.Choice(["transformers"]),
    help="Compare f32 with the same weights there, too.",
)
@json_option
def command(
    model: str,
    weights: tuple[WeightFormat, ...],
    text: Path | None,
    window: int,
    stride: int,
    kv: KvFormat,
    threads: int | None,
    activation_bits: ActivationBits | None,
    versus: str | None,
    as_json: bool,
) -> None:
    """Perplexity of a text, and greedy answers to 20 prompts, by the format of the weights."""
    from stapes.bench.fidelity import FidelityBench, run
    from stapes.bench.perplexity import Windows

    windows = Windows(window, stride)
    bench = FidelityBench(model, weights, text, kv, threads, windows, activation_bits or 13)
    show(run(bench, messages.note, _peer(versus)), as_json)


def _peer(versus: str | None) -> Callable[[FidelityBench], Peer] | None:
    if versus is None:
        return None
    from stapes.bench.versus_fidelity import TransformersText

    return TransformersText
