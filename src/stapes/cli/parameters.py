"""Command-line options that several commands share, derived from the options of the runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from stapes.api import DEFAULT_MODEL
from stapes.cli import messages
from stapes.options import (
    ACTIVATION_BITS,
    KV_FORMATS,
    MAX_THREADS,
    WEIGHT_FORMATS,
    RuntimeOptions,
)

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

#: Times words, when nothing else is said.
DEFAULT_ALIGNER = "Qwen/Qwen3-ForcedAligner-0.6B"

model_option = click.option(
    "--model",
    default=DEFAULT_MODEL,
    show_default=True,
    metavar="MODEL",
    help="Name of a bundled model or of one of the Hugging Face hub (OWNER/NAME, see 'stapes "
    "models'), a folder with a Qwen3-ASR checkpoint, or a converted file.",
)


def words_options(where: str) -> Callable[[Decorated], Decorated]:
    """--words and --aligner; `where` says what the words' times are good for."""

    def decorate(function: Decorated) -> Decorated:
        function = click.option(
            "--aligner",
            default=DEFAULT_ALIGNER,
            show_default=True,
            metavar="MODEL",
            help="Of --words: a Qwen3-ForcedAligner model by name, folder, or converted file.",
        )(function)
        about = f"Tell when each word is spoken, by the model of --aligner: {where}."
        return click.option("--words", is_flag=True, help=about)(function)

    return decorate


def chosen_aligner(words: bool, aligner: str) -> str | None:
    """What times the words, None without --words: then an --aligner that was given is remarked."""
    if words:
        return aligner
    source = click.get_current_context().get_parameter_source("aligner")
    if source is ParameterSource.COMMANDLINE:
        messages.note("--aligner does nothing without --words.")
    return None


threads_option = click.option(
    "--threads",
    type=click.IntRange(min=1, max=MAX_THREADS),
    metavar="N",
    show_default="what the CPU affinity and quota allow",
    help="Worker threads.",
)


def _weights_option(default: str | None, shown: str) -> Callable[[Decorated], Decorated]:
    return click.option(
        "--weights",
        type=click.Choice(WEIGHT_FORMATS),
        default=default,
        show_default=shown,
        help="Format of the matrices in memory.",
    )


encoder_weights_option = click.option(
    "--encoder-weights",
    type=click.Choice(WEIGHT_FORMATS),
    show_default="as --weights, but q8 for q4: audio encoders drift below 8 bits",
    help="Format of the audio encoder's matrices.",
)
kv_option = click.option(
    "--kv",
    type=click.Choice(KV_FORMATS),
    default=RuntimeOptions.kv,
    show_default=True,
    help="Format of the KV cache.",
)
activation_bits_option = click.option(
    "--activation-bits",
    type=click.Choice([str(bits) for bits in ACTIVATION_BITS]),
    callback=lambda _context, _option, bits: bits and int(bits),
    show_default="9 in speech recognition, else 13",
    help="Bits of activations beside q8 weights; 9 are faster with AVX-512.",
)
#: Of random weights, packed here and now.
packing_option = _weights_option("q8", "q8")
#: Of a checkpoint that is converted.
converting_option = _weights_option(None, "q8, but bf16 for Vevo2")
#: Of a model that may have been packed before.
weights_option = _weights_option(None, "what a converted file holds, or q8, but bf16 for Vevo2")

trace_option = click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write where the time went to FILE, as a Chrome trace.",
)


def runtime_options(command: Decorated) -> Decorated:
    """Add fields of RuntimeOptions for random weights: all but --encoder-weights."""
    return packing_option(kv_option(threads_option(activation_bits_option(command))))


def model_options(command: Decorated) -> Decorated:
    """Add all fields of RuntimeOptions, for a model that may be a converted file."""
    command = kv_option(threads_option(activation_bits_option(command)))
    return weights_option(encoder_weights_option(command))
