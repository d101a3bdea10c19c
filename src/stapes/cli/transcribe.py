"""`stapes transcribe`: recordings to text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from stapes.cli import messages
from stapes.cli.exits import DONE, INTERRUPTED, exit_code
from stapes.cli.interrupt import interruptible
from stapes.cli.loading import open_aligner, open_speech
from stapes.cli.parameters import (
    chosen_aligner,
    model_option,
    model_options,
    trace_option,
    words_options,
)
from stapes.cli.tracing import tracing
from stapes.errors import AudioError, CapacityError, RequestError
from stapes.options import RuntimeOptions, TranscribeOptions
from stapes.output.files import STDIN
from stapes.output.formats import ALL, FORMATS, format_names

if TYPE_CHECKING:
    from stapes.cli.progress import Reporter
    from stapes.cli.sinks import Sink
    from stapes.models.interface import SpeechModel
    from stapes.models.qwen3_asr.aligner import ForcedAligner
    from stapes.models.transcript import Transcript


@dataclass(frozen=True)
class Job:
    """What one call of the command asks for."""

    files: tuple[str, ...]
    model: str
    formats: tuple[str, ...]
    output_dir: Path | None
    runtime: RuntimeOptions
    options: TranscribeOptions
    trace: Path | None
    resume: bool = False
    aligner: str | None = None


# Options by which Whisper's command is known, as other spellings of ours.
_ALIASES = {"output_format": "format", "output_dir": "output-dir", "initial_prompt": "context"}


def _option_name(name: str) -> str:
    return _ALIASES.get(name, name)


@click.command(
    "transcribe",
    short_help="Turn recordings into text.",
    context_settings={"token_normalize_func": _option_name},
)
@click.argument("audio", nargs=-1, required=True, metavar="AUDIO...")
@model_option
@click.option(
    "--language",
    metavar="LANGUAGE",
    show_default="detected",
    help="Force the language: an English name or an ISO 639 code.",
)
@click.option("--context", default="", metavar="TEXT", help="Names and words to expect.")
@click.option(
    "--format",
    "listed_formats",
    default="text",
    show_default=True,
    metavar="LIST",
    help=f"One or several of {', '.join([*FORMATS, ALL])}, with commas between.",
)
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a file of each format for each recording into DIR, replacing those that are there.",
)
@model_options
@click.option(
    "--max-new-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="by its length",
    help="Most tokens for a piece.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="up to 16, by the free memory",
    help="Pieces decoded side by side: faster, with the same text.",
)
@click.option(
    "--chunk-seconds",
    type=click.FloatRange(min=1, max=300),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Longest piece; a recording is cut at silence. Beyond 30 s accuracy suffers.",
)
@click.option("--no-vad", is_flag=True, help="Do not leave out silence, music and noise.")
@click.option(
    "--resume", is_flag=True, help="With files as output: leave out recordings that have them all."
)
@words_options("in json, and for finer subtitles")
@trace_option
def command(
    audio: tuple[str, ...],
    model: str,
    language: str | None,
    context: str,
    listed_formats: str,
    output_dir: Path | None,
    max_new_tokens: int | None,
    batch: int | None,
    chunk_seconds: float,
    no_vad: bool,
    resume: bool,
    words: bool,
    aligner: str,
    trace: Path | None,
    **runtime: object,
) -> int:
    """Transcribe recordings: files that hold sound, or - for standard input.

    The text goes to standard output, one recording after another; progress and warnings go to
    standard error. A recording that cannot be used does not stop the others. Ctrl-C prints what has
    been transcribed of the present recording, and ends; --resume goes on from there.

    Standard output takes one format: text or json of any number of recordings, a line each, or
    srt, vtt or tsv of one. For more than that there are files: beside the recordings, where they
    replace nothing, or in the folder that --output-dir names.

    --output_format, --output_dir and --initial_prompt are other names of --format, --output-dir
    and --context.
    """
    formats = _formats(listed_formats)
    held = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    options = TranscribeOptions(
        language=_canonical(language),
        context=context,
        max_new_tokens=max_new_tokens,
        batch=batch,
        chunk_seconds=chunk_seconds,
        vad=not no_vad,
    )
    timed_by = chosen_aligner(words, aligner)
    return run(Job(audio, model, formats, output_dir, held, options, trace, resume, timed_by))


def run(job: Job) -> int:
    """Do the job: everything that can be refused is refused before the model is loaded."""
    from stapes.cli.progress import reporter_for_stderr

    _check_stdin(job.files)
    files, sink = _open_sink(job)
    if not files:
        messages.note(f"all {len(job.files)} recordings are transcribed already.")
        return DONE
    reporter = reporter_for_stderr()
    codes = []
    with tracing(job.trace) as tracer:
        model = open_speech(job.model, job.runtime, tracer)
        aligner = open_aligner(job.aligner, job.runtime) if job.aligner else None
        with interruptible() as is_interrupted:
            for file in files:
                work = _Work(job.model, model, aligner, job.options, sink, reporter, is_interrupted)
                codes.append(work.attempt(file))
                if is_interrupted():
                    messages.error("interrupted.")
                    return INTERRUPTED
    return max(codes)


def _formats(listed: str) -> tuple[str, ...]:
    try:
        return format_names(listed)
    except RequestError as error:
        raise click.BadParameter(str(error), param_hint="--format") from error


def _canonical(language: str | None) -> str | None:
    if language is None:
        return None
    from stapes.text.languages import canonical_language

    return canonical_language(language)


def _check_stdin(files: tuple[str, ...]) -> None:
    if files.count(STDIN) > 1:
        raise RequestError("standard input (-) can be given only once.")
    if STDIN in files and (sys.stdin is None or sys.stdin.isatty()):
        raise RequestError("standard input (-) holds no recording: pipe a file into it.")


def _open_sink(job: Job) -> tuple[tuple[str, ...], Sink]:
    """The recordings that are still to be transcribed, and where their texts go."""
    from stapes.cli.sinks import FileSink, StdoutSink, finished

    outputs = [FORMATS[name] for name in job.formats]
    is_stream = len(outputs) == 1 and (outputs[0].is_line or len(job.files) == 1)
    if is_stream and job.output_dir is None:
        if job.resume:
            raise RequestError("--resume needs files to go by: give --output-dir.")
        return job.files, StdoutSink(outputs[0])
    if STDIN in job.files and job.output_dir is None:
        raise RequestError(
            "standard input (-) has no folder beside which files could go: give --output-dir."
        )
    files = job.files
    if job.resume:
        done = finished(outputs, files, job.output_dir)
        files = tuple(file for file in files if file not in done)
        if done and files:
            messages.note(f"{len(done)} of {len(job.files)} recordings are transcribed already.")
    return files, FileSink(outputs, files, job.output_dir)


@dataclass(frozen=True)
class _Work:
    """Transcribes recordings one by one.

    Attributes:
        name: what transcripts call the model: as the user does, not the file it was loaded from.
        aligner: times the words, or None.
    """

    name: str
    model: SpeechModel
    aligner: ForcedAligner | None
    options: TranscribeOptions
    sink: Sink
    reporter: Reporter
    is_interrupted: Callable[[], bool]

    def attempt(self, file: str) -> int:
        """One recording; an error that concerns it alone is told and becomes its code."""
        try:
            transcript = self._transcribe(file)
        except (AudioError, CapacityError) as error:
            messages.error(messages.about(file, str(error)))
            return exit_code(error)
        for sentence in transcript.warnings:
            messages.warning(file, sentence)
        if transcript.finish_reason != "cancelled":
            self.sink.write(file, transcript)
        elif transcript.text:
            self.sink.write_part(file, transcript)
        return DONE

    def _transcribe(self, file: str) -> Transcript:
        with self.reporter.recording(file) as on_progress:
            transcript = self.model.transcribe(
                _source(file),
                **vars(self.options),
                aligner=self.aligner,
                on_progress=on_progress,
                should_cancel=self.is_interrupted,
            )
        return replace(transcript, model=self.name)


def _source(file: str) -> str | BinaryIO:
    return sys.stdin.buffer if file == STDIN else file
