"""`stapes convert-voice`: a recording in another voice, in its own style or another."""

from __future__ import annotations

from typing import Any

import click

from stapes.cli.voice_options import voice_options
from stapes.cli.voice_run import Job, recordings, run, text_of
from stapes.errors import RequestError
from stapes.output.files import STDIN


@click.command("convert-voice", short_help="Let another voice say what a recording holds.")
@click.argument("source", metavar="SOURCE")
@click.option("--voice", metavar="REF", help="A recording of the voice, best of 3 to 30 s.")
@click.option(
    "--style",
    metavar="FILE",
    help="A recording whose way of speaking or singing is taken on; then --voice may be left out.",
)
@click.option("--style-text", metavar="TEXT", help="What is said in it; needed with --style.")
@click.option(
    "--text", metavar="TEXT", help="With --style: what is said in SOURCE, or - for standard input."
)
@click.option("--singing", is_flag=True, help="SOURCE sings.")
@voice_options
def command(
    source: str,
    voice: str | None,
    style: str | None,
    style_text: str | None,
    text: str | None,
    singing: bool,
    **given: Any,
) -> int:
    """Let another voice say or sing what a recording holds.

    SOURCE is a file that holds sound, or - for standard input. Without --style its way of speaking
    is kept, it may have any length, and the result is as long. The published weights are licensed
    CC-BY-NC-ND-4.0: no commercial use, no redistribution of converted weights.

    A line about what was written goes to standard error; Ctrl-C writes nothing.
    """
    if style is None and text is not None:
        raise RequestError("--text needs --style: without a style the words of SOURCE are kept.")
    if style is not None and text is None:
        raise RequestError("--style needs --text, what is said in SOURCE.")
    if [source, voice, style, text].count(STDIN) > 1:
        raise RequestError("standard input (-) holds the text or one recording, not more.")
    found = recordings(source=(source, None), style=(style, style_text), timbre=(voice, None))
    way, kind = "preserved" if style is None else "converted", "singing" if singing else "voice"
    task = f"style_{way}_{kind}_conversion"
    return run(Job(task, "" if text is None else text_of(text), found, given))
