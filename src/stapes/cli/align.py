"""`stapes align`: when each word of a known text is spoken."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from stapes.cli import messages, stdout
from stapes.cli.exits import DONE, exit_code
from stapes.cli.loading import open_aligner
from stapes.cli.parameters import DEFAULT_ALIGNER, model_options, trace_option
from stapes.cli.tracing import tracing
from stapes.errors import AudioError, CapacityError, RequestError
from stapes.options import RuntimeOptions
from stapes.output.files import STDIN
from stapes.output.formats import FORMATS

if TYPE_CHECKING:
    from stapes.models.transcript import Transcript

_FORMATS = ("json", "srt", "vtt", "tsv")  # those that have times


@dataclass(frozen=True)
class Job:
    """What one call of the command asks for."""

    file: str
    text: str
    model: str
    language: str | None
    format: str
    runtime: RuntimeOptions
    trace: Path | None


@click.command("align", short_help="Tell when each word of a text is spoken.")
@click.argument("audio", metavar="AUDIO")
@click.option(
    "--text",
    "text_file",
    required=True,
    metavar="FILE",
    help="What is said: a text file in UTF-8, or - for standard input.",
)
@click.option(
    "--model",
    "--aligner",  # as transcribe and listen call it
    "model",
    default=DEFAULT_ALIGNER,
    show_default=True,
    metavar="MODEL",
    help="A Qwen3-ForcedAligner model: a name of the Hugging Face hub, a folder, or a converted "
    "file.",
)
@click.option(
    "--language",
    metavar="LANGUAGE",
    help="The text's: refused at once when the model was not trained on it.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    default="json",
    show_default=True,
    help="json has each word with its times, and so has tsv, a row each.",
)
@model_options
@trace_option
def command(
    audio: str,
    text_file: str,
    model: str,
    language: str | None,
    format_: str,
    trace: Path | None,
    **runtime: object,
) -> int:
    """Tell when each word of a known text is spoken in a recording of up to 300 s.

    AUDIO is a file that holds sound, or - for standard input. The text must be what is said in it,
    all of it: every word gets a time, also one that is not there. Words keep their punctuation.
    The answer goes to standard output.
    """
    if STDIN == audio == text_file:
        raise RequestError("standard input (-) holds the recording or the text, not both.")
    text = _read_text(text_file)
    held = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    return run(Job(audio, text, model, _canonical(language), format_, held, trace))


def run(job: Job) -> int:
    """Do the job; what could be refused without the model has been."""
    with tracing(job.trace) as tracer:
        model = open_aligner(job.model, job.runtime, tracer)
        try:
            transcript = model.transcript(_source(job.file), job.text, language=job.language)
        except (AudioError, CapacityError) as error:
            messages.error(messages.about(job.file, str(error)))
            return exit_code(error)
    for sentence in transcript.warnings:
        messages.warning(job.file, sentence)
    output = FORMATS[job.format]
    shown = _word_by_word(transcript) if job.format == "tsv" else transcript
    stdout.write(output.render(job.file, shown), output.encoding)
    return DONE


def _read_text(file: str) -> str:
    """What a text file says; RequestError when it cannot be read or has no words."""
    from stapes.text.words import alignable_words

    name = "standard input" if file == STDIN else file
    try:
        text = _read_bytes(file).decode("utf-8-sig")
    except OSError as error:
        raise RequestError(f"{name} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{name} is not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}."
        ) from error
    if not alignable_words(text):
        raise RequestError(f"{name} holds no word: none of {len(text)} characters is a letter.")
    return text


def _read_bytes(file: str) -> bytes:
    if file != STDIN:
        return Path(file).read_bytes()
    if sys.stdin is None or sys.stdin.isatty():
        raise RequestError("standard input (-) holds no text: pipe one into the command.")
    return sys.stdin.buffer.read()


def _source(file: str) -> str | BinaryIO:
    if file != STDIN:
        return file
    if sys.stdin is None or sys.stdin.isatty():
        raise RequestError("standard input (-) holds no recording: pipe a file into it.")
    return sys.stdin.buffer


def _canonical(language: str | None) -> str | None:
    if language is None:
        return None
    from stapes.text.languages import canonical_language

    return canonical_language(language)


def _word_by_word(transcript: Transcript) -> Transcript:
    """A segment for each word: a table has rows for segments."""
    from stapes.models.transcript import Segment

    words = [word for segment in transcript.segments for word in segment.words]
    return replace(
        transcript,
        segments=tuple(Segment(w.start_s, w.end_s, w.text, transcript.language) for w in words),
    )
