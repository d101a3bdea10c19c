"""Options and output that the benchmarks share."""

from __future__ import annotations

import json
from collections.abc import Callable

import click

from stapes.cli import stdout
from stapes.cli.parameters import Decorated

#: Kept here, since --help must not import what knows the sizes; a test compares the two.
SYNTHETIC_NAMES = ("qwen3-asr-0.6b", "qwen3-asr-1.7b")

SYNTHETIC_DECODER_NAMES = ("vevo2-ar",)


def _synthetic_option(*names: str) -> Callable[[Decorated], Decorated]:
    return click.option(
        "--synthetic",
        type=click.Choice(names),
        default=names[0],
        show_default=True,
        help="Size of the model, built with random weights in memory.",
    )


synthetic_option = _synthetic_option(*SYNTHETIC_NAMES)
#: Of what needs no encoder.
synthetic_decoder_option = _synthetic_option(*SYNTHETIC_NAMES, *SYNTHETIC_DECODER_NAMES)
rounds_option = click.option(
    "--rounds",
    type=click.IntRange(min=1, max=100),
    default=3,
    show_default=True,
    help="Rounds; figures are their medians.",
)
instruction_set_option = click.option(
    "--instruction-set",
    default="auto",
    show_default=True,
    help="avx512, avx2 or portable; auto takes the best that is there.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the JSON object only.")


def show(result: dict[str, object], as_json: bool) -> None:
    """Print a table, unless only the JSON object is wanted, and the object on the last line."""
    if not as_json:
        for name, value in result.items():
            stdout.lines(_entry(name, value))
    stdout.lines([json.dumps(result)])


def _entry(name: str, value: object) -> list[str]:
    if isinstance(value, dict):
        return [line for key, inner in value.items() for line in _entry(f"{name} {key}", inner)]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        head = "  ".join(f"{column:>14}" for column in value[0])
        rows = ["  ".join(f"{cell!s:>14}" for cell in row.values()) for row in value]
        return [name, head, *rows]
    return [f"{name:32} {value}"]
