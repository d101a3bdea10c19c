"""Options that the commands of voice models share, derived from `VoiceOptions`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from stapes.cli.parameters import kv_option, threads_option, trace_option
from stapes.options import WEIGHT_FORMATS

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DEFAULT_VOICE_MODEL = "RMSnow/Vevo2"


def _formats(name: str, default: str, what: str) -> Callable[[Decorated], Decorated]:
    return click.option(
        name,
        type=click.Choice(WEIGHT_FORMATS),
        show_default=default,
        help=f"Format of the matrices of {what}.",
    )


_OUTPUT = (
    click.option(
        "--out",
        "out",
        required=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The sound: .wav (24 kHz, 16 bits), .flac, .mp3, .ogg, .m4a, or what else FFmpeg "
        "writes.",
    ),
    click.option("--force", is_flag=True, help="Replace FILE if it exists."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end."),
)

_SOUND = (
    click.option(
        "--seed",
        type=int,
        metavar="N",
        help="Make the sound repeat exactly.  [default: another each time, which is told]",
    ),
    click.option(
        "--steps",
        type=int,
        default=32,
        show_default=True,
        metavar="N",
        help="Steps of flow matching: fewer are faster and rougher.",
    ),
    click.option(
        "--guidance",
        type=float,
        default=1.0,
        show_default=True,
        metavar="X",
        help="Strength of flow matching's guidance; 0 halves the work.",
    ),
    click.option(
        "--pitch-steps",
        type=int,
        metavar="N",
        show_default="estimated from both voices where the task asks for it",
        help="Semitones by which melody, style and source are shifted; 0 shifts nothing.",
    ),
    click.option(
        "--level",
        "level_db",
        type=float,
        default=-25.0,
        show_default=True,
        metavar="DB",
        help="RMS level of the sound below full scale.",
    ),
    click.option("--no-level", is_flag=True, help="Keep the level that the vocoder gives."),
)

_DRAWING = (
    click.option(
        "--temperature",
        type=float,
        default=1.0,
        show_default=True,
        metavar="T",
        help="Of the codes that are drawn; 0 takes the likeliest each time.",
    ),
    click.option(
        "--top-k",
        type=int,
        default=25,
        show_default=True,
        metavar="K",
        help="Draw from the K likeliest codes.",
    ),
    click.option(
        "--top-p",
        type=float,
        default=0.8,
        show_default=True,
        metavar="P",
        help="Draw from the likeliest codes that together have the probability P.",
    ),
    click.option(
        "--repetition-penalty",
        type=float,
        metavar="X",
        show_default="what the model asks for",
        help="Above 1: make codes that have occurred less likely.",
    ),
    click.option(
        "--max-new-tokens",
        type=int,
        default=500,
        show_default=True,
        metavar="N",
        help="Most codes of a piece: 500 are 40 s.",
    ),
    click.option(
        "--codes-only", is_flag=True, help="Rule out everything but codes before drawing."
    ),
)

_MODEL = (
    click.option(
        "--model",
        default=DEFAULT_VOICE_MODEL,
        show_default=True,
        metavar="MODEL",
        help="The folder of Vevo2 as it is published, or its name on the Hugging Face hub.",
    ),
    click.option(
        "--whisper",
        type=click.Path(path_type=Path),
        metavar="PATH",
        show_default="whisper-medium, inside the model's folder or beside it",
        help="Whisper medium: its folder or its .pt file.",
    ),
    _formats("--weights", "bf16", "the stage that writes codes"),
    _formats("--encoder-weights", "f32", "the tokenizers and Whisper"),
    _formats("--acoustic-weights", "bf16", "flow matching and the vocoder"),
    kv_option,
    threads_option,
    trace_option,
)


def _all(*groups: tuple[Any, ...]) -> Callable[[Decorated], Decorated]:
    def add(command: Decorated) -> Decorated:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return add


#: Everything that both commands take.
voice_options = _all(_OUTPUT, _SOUND, _DRAWING, _MODEL)
