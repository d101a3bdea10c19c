"""`stapes convert`: a model into one file that is used in place."""

from __future__ import annotations

from pathlib import Path

import click

from stapes.cli import messages
from stapes.cli.parameters import converting_option, encoder_weights_option, threads_option
from stapes.cli.progress import reporter_for_stderr
from stapes.cli.ready import original_model
from stapes.cli.terminable import terminable
from stapes.options import RuntimeOptions, WeightFormat


@click.command("convert", short_help="Pack a model into one file that loads at once.")
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST", type=click.Path(path_type=Path))
@converting_option
@encoder_weights_option
@click.option("--force", is_flag=True, help="Replace DST if it exists.")
@threads_option
def command(
    source: str,
    destination: Path,
    weights: WeightFormat | None,
    encoder_weights: WeightFormat | None,
    force: bool,
    threads: int | None,
) -> None:
    """Pack a model into one file, which is mapped into memory and used in place.

    SRC is the name of a bundled model or of one of the hub, the folder of a Qwen3-ASR,
    Qwen3-ForcedAligner, Qwen2, Qwen3 or Vevo2 checkpoint (of Vevo2 the autoregressive stage), or a
    GGUF file of Qwen2 or Qwen3. DST is the file to write, whole or not at all; models are usually
    called NAME.stapes. It holds weights, configuration and tokenizer: SRC is not needed any more.
    """
    from stapes.models.convert import convert

    options = RuntimeOptions(weights, threads=threads, encoder_weights=encoder_weights)
    model = original_model(source)
    with terminable(), reporter_for_stderr().converting(source):
        convert(model, destination, options, force=force)
    messages.note(f"wrote {destination} ({destination.stat().st_size / 1e6:.1f} MB)")
