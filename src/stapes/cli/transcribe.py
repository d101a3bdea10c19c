"""`stapes transcribe`: recordings to text."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from stapes.cli import messages
from stapes.cli.exits import DONE, exit_code
from stapes.cli.parameters import model_option, model_options, trace_option
from stapes.cli.tracing import tracing
from stapes.errors import AudioError, CapacityError, RequestError
from stapes.options import KvFormat, RuntimeOptions, TranscribeOptions, WeightFormat
from stapes.output.files import STDIN
from stapes.output.formats import ALL, FORMATS, format_names

if TYPE_CHECKING:
    from stapes.cli.progress import Reporter
    from stapes.cli.sinks import Sink
    from stapes.graph import Tracer
    from stapes.models.interface import SpeechModel
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
    help="Most tokens for a piece of at most 30 s.",
)
@trace_option
def command(
    audio: tuple[str, ...],
    model: str,
    language: str | None,
    context: str,
    listed_formats: str,
    output_dir: Path | None,
    weights: WeightFormat | None,
    encoder_weights: WeightFormat | None,
    kv: KvFormat,
    threads: int | None,
    max_new_tokens: int | None,
    trace: Path | None,
) -> int:
    """Transcribe recordings: files that hold sound, or - for standard input.

    The text goes to standard output, one recording after another; progress and warnings go to
    standard error. A recording that cannot be used does not stop the others.

    Standard output takes one format: text or json of any number of recordings, a line each, or
    srt, vtt or tsv of one. For more than that there are files: beside the recordings, where they
    replace nothing, or in the folder that --output-dir names.

    --output_format, --output_dir and --initial_prompt are other names of --format, --output-dir
    and --context.
    """
    formats = format_names(listed_formats)
    runtime = RuntimeOptions(weights, kv, threads, encoder_weights)
    options = TranscribeOptions(
        language=_canonical(language), context=context, max_new_tokens=max_new_tokens
    )
    return run(Job(audio, model, formats, output_dir, runtime, options, trace))


def run(job: Job) -> int:
    """Do the job: everything that can be refused is refused before the model is loaded."""
    from stapes.cli.progress import reporter_for_stderr

    _check_stdin(job.files)
    sink = _open_sink(job)
    reporter = reporter_for_stderr()
    with tracing(job.trace) as tracer:
        model = _load(job, reporter, tracer)
        codes = [_attempt(file, model, job.options, sink, reporter) for file in job.files]
    return max(codes)


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


def _open_sink(job: Job) -> Sink:
    from stapes.cli.sinks import FileSink, StdoutSink

    outputs = [FORMATS[name] for name in job.formats]
    is_stream = len(outputs) == 1 and (outputs[0].is_line or len(job.files) == 1)
    if is_stream and job.output_dir is None:
        return StdoutSink(outputs[0])
    if STDIN in job.files and job.output_dir is None:
        raise RequestError(
            "standard input (-) has no folder beside which files could go: give --output-dir."
        )
    return FileSink(outputs, job.files, job.output_dir)


def _load(job: Job, reporter: Reporter, tracer: Tracer | None) -> SpeechModel:
    import stapes

    runtime = job.runtime
    with reporter.loading(job.model):
        return stapes.load(
            job.model,
            weights=runtime.weights,
            encoder_weights=runtime.encoder_weights,
            kv=runtime.kv,
            threads=runtime.threads,
            tracer=tracer,
        )


def _attempt(
    file: str, model: SpeechModel, options: TranscribeOptions, sink: Sink, reporter: Reporter
) -> int:
    """Transcribe one recording; an error that concerns it alone is told and becomes its code."""
    try:
        transcript = _transcribe(file, model, options, reporter)
    except (AudioError, CapacityError) as error:
        messages.error(messages.about(file, str(error)))
        return exit_code(error)
    for sentence in transcript.warnings:
        messages.warning(file, sentence)
    sink.write(file, transcript)
    return DONE


def _transcribe(
    file: str, model: SpeechModel, options: TranscribeOptions, reporter: Reporter
) -> Transcript:
    with reporter.recording(file) as on_progress:
        return model.transcribe(
            _source(file),
            language=options.language,
            context=options.context,
            max_new_tokens=options.max_new_tokens,
            loop_detection=options.loop_detection,
            on_progress=on_progress,
        )


def _source(file: str) -> str | BinaryIO:
    return sys.stdin.buffer if file == STDIN else file
