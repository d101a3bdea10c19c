"""`stapes speak`: a text in the voice of a recording, spoken or sung."""

from __future__ import annotations

from typing import Any

import click

from stapes.cli.voice_options import voice_options
from stapes.cli.voice_run import Job, recordings, run, text_of
from stapes.errors import RequestError
from stapes.models.vevo2.tasks import TASKS, Task
from stapes.output.files import STDIN

_SPOKEN = tuple(task.name for task in TASKS.values() if task.autoregressive)


def _list_tasks(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        for task in TASKS.values():
            click.echo(f"{task.name:36} {_needs(task)}")
        context.exit()


def _needs(task: Task) -> str:
    """The options of a task, those in brackets may be left out."""
    if not task.autoregressive:
        return "SOURCE --voice (stapes convert-voice)"
    options = ["--text"]
    for role in dict.fromkeys((task.prosody, task.style)):
        if role is not None:
            options.append(f"--{role} --{role}-text" if role == task.style else f"--{role}")
    if task.timbre == ("timbre",) or task.prosody is None:
        options.append("--voice")
    elif "timbre" in task.timbre:
        options.append("[--voice]")
    if task.style is None:
        options.append("[--style --style-text]")
    return " ".join(options)


@click.command("speak", short_help="Say or sing a text in the voice of a recording.")
@click.option(
    "--text", required=True, metavar="TEXT", help="What is said or sung, or - for standard input."
)
@click.option(
    "--voice", metavar="REF", help="A recording of the voice that is heard, best of 3 to 30 s."
)
@click.option(
    "--voice-text", metavar="TEXT", help="What is said in REF: without it words may be repeated."
)
@click.option(
    "--style",
    metavar="FILE",
    help="A recording whose way of speaking or singing is taken on, instead of REF's.",
)
@click.option("--style-text", metavar="TEXT", help="What is said there.")
@click.option(
    "--task",
    type=click.Choice(_SPOKEN),
    default=_SPOKEN[0],
    metavar="TASK",
    show_default=True,
    help="What to do: see --tasks.",
)
@click.option("--source", metavar="FILE", help="Of tasks that work on a recording: that one.")
@click.option("--source-text", metavar="TEXT", help="What is said in it.")
@click.option("--melody", metavar="FILE", help="Of tasks that follow a melody: hummed or played.")
@click.option(
    "--duration",
    "duration_s",
    type=float,
    metavar="S",
    show_default="as recorded",
    help="Seconds to which the melody, or the source's prosody, is stretched.",
)
@click.option(
    "--longest-piece",
    type=int,
    default=200,
    show_default=True,
    metavar="N",
    help="Most characters that are spoken at a time; Chinese, Japanese and Korean ones count 3.",
)
@click.option(
    "--tasks",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_tasks,
    help="List the tasks with the options that each needs, and leave.",
)
@voice_options
def command(
    text: str,
    voice: str | None,
    voice_text: str | None,
    style: str | None,
    style_text: str | None,
    task: str,
    source: str | None,
    source_text: str | None,
    melody: str | None,
    **given: Any,
) -> int:
    """Say or sing a text in the voice of a recording.

    Long text is spoken in pieces, cut at sentences, with the same voice. The published weights are
    licensed CC-BY-NC-ND-4.0: no commercial use, no redistribution of converted weights.

    A line about what was written goes to standard error; Ctrl-C writes nothing.
    """
    found = recordings(
        source=(source, source_text),
        melody=(melody, None),
        style=(style, style_text),
        timbre=(voice, voice_text),
    )
    files = [recording.file for recording in found.values()]
    if [text, *files].count(STDIN) > 1:
        raise RequestError("standard input (-) holds the text or one recording, not more.")
    return run(Job(task, text_of(text), found, given))
