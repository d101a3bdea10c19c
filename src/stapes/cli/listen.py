"""`stapes listen`: live transcription."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from stapes.cli import messages
from stapes.cli.exits import DONE
from stapes.cli.interrupt import interruptible
from stapes.cli.loading import open_aligner, open_speech
from stapes.cli.parameters import chosen_aligner, model_option, model_options, words_options
from stapes.errors import RequestError, StapesError
from stapes.options import RuntimeOptions
from stapes.output.files import STDIN

if TYPE_CHECKING:
    from stapes.cli.listen_output import Output
    from stapes.cli.listen_sources import Source
    from stapes.streaming import StreamEvent, StreamPolicy
    from stapes.streaming.stream import Stream

_T = TypeVar("_T")

_WAIT_S = 0.1  # for audio, when there is nothing to do
_MOST_WAITING_S = 60.0  # of audio that is taken from a pipe before it is read
_MOST_LAG_S = 16.0  # of a microphone: beyond it, looks that settle text are left out, too


@dataclass(frozen=True)
class Job:
    """What one call of the command asks for."""

    source: str | None
    device: str | None
    rate: int | None
    fast: bool
    as_json: bool
    model: str
    runtime: RuntimeOptions
    language: str | None
    context: str
    vad: bool
    policy: StreamPolicy
    aligner: str | None


@click.command("listen", short_help="Transcribe while people speak.")
@click.argument("source", required=False, metavar="[- | FILE]")
@click.option(
    "--device",
    metavar="D",
    show_default="the system's",
    help="Microphone, by its number or part of its name.",
)
@click.option(
    "--rate",
    type=click.IntRange(min=1000, max=1_000_000),
    metavar="HZ",
    show_default="16000; the microphone's own",
    help="Sample rate of raw PCM, or of the microphone.",
)
@click.option("--json", "as_json", is_flag=True, help="Print events, one JSON object a line.")
@click.option("--fast", is_flag=True, help="Read FILE as fast as it goes, not at its pace.")
@model_option
@click.option(
    "--language",
    metavar="LANGUAGE",
    show_default="detected",
    help="Force the language: an English name or an ISO 639 code.",
)
@click.option("--context", default="", metavar="TEXT", help="Names and words to expect.")
@click.option(
    "--step",
    type=click.FloatRange(min=0.1, max=60),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Seconds of audio from one look at it to the next.",
)
@click.option(
    "--silence",
    type=click.FloatRange(min=0.1, max=10),
    default=0.8,
    show_default=True,
    metavar="S",
    help="Seconds of silence that end an utterance.",
)
@click.option("--no-vad", is_flag=True, help="Do not leave out silence, music and noise.")
@words_options("in the final events of --json")
@model_options
def command(
    source: str | None,
    device: str | None,
    rate: int | None,
    as_json: bool,
    fast: bool,
    model: str,
    language: str | None,
    context: str,
    step: float,
    silence: float,
    no_vad: bool,
    words: bool,
    aligner: str,
    **runtime: object,
) -> int:
    """Transcribe a microphone, standard input (-) or a file while it is heard.

    Standard input is WAV, or raw PCM: 16-bit integers, little endian, one channel, at --rate. So
    ffmpeg brings in anything: ffmpeg -i URL -f wav - | stapes listen -

    Each utterance is printed once silence has ended it. On a terminal, what is heard so far stands
    below and is rewritten. With --json there is a line for each event: "partial" text may still
    change, "committed" text will not, and the "final" ones together are the transcript. lag_s is
    the time from the audio at end_s to the event.

    Ctrl-C ends the audio; what has been heard is transcribed and printed. A second one stops at
    once. The microphone needs the extra: pip install 'stapes[mic]'.
    """
    from stapes.streaming import StreamPolicy

    live = source != STDIN and not fast
    policy = StreamPolicy(
        step_s=step, silence_s=silence, max_lag_s=max(_MOST_LAG_S, step) if live else None
    )
    held = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    return run(
        Job(
            source,
            device,
            rate,
            fast,
            as_json,
            model,
            held,
            language,
            context,
            not no_vad,
            policy,
            chosen_aligner(words, aligner),
        )
    )


def run(job: Job) -> int:
    """Do the job: the source is opened first, since a missing one is told at once."""
    with _open(job) as source, interruptible() as is_interrupted:
        stream = _stream(job, source)
        output = _output(job, source.name)
        try:
            most_s = 0.0 if job.fast else _MOST_WAITING_S
            _listen(stream, source, output, is_interrupted, most_s)
        finally:
            output.close()
        for sentence in source.warnings():
            messages.warning(source.name, sentence)
    return DONE


def _open(job: Job) -> AbstractContextManager[Source]:
    from stapes.cli.listen_sources import file_source, microphone_source, pipe_source

    if job.source is None:
        if job.fast:
            raise RequestError("--fast belongs to a FILE.")
        return microphone_source(job.device, job.rate)
    if job.device is not None:
        raise RequestError(f"--device is a microphone; it cannot go with {job.source!r}.")
    if job.source == STDIN:
        return pipe_source(job.rate)
    if job.rate is not None:
        raise RequestError("--rate belongs to raw PCM and the microphone; a file says its own.")
    return file_source(job.source, job.fast)


def _stream(job: Job, source: Source) -> Stream:
    import stapes

    return stapes.stream(
        open_speech(job.model, job.runtime),
        policy=job.policy,
        language=job.language,
        context=job.context,
        sample_rate=source.rate,
        vad=job.vad,
        aligner=open_aligner(job.aligner, job.runtime) if job.aligner else None,
    )


def _output(job: Job, source: str) -> Output:
    from stapes.cli.listen_output import JsonOutput, PlainOutput, TerminalOutput

    if job.as_json:
        return JsonOutput(source)
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return TerminalOutput(source) if on_terminal else PlainOutput(source)


def _listen(
    stream: Stream,
    source: Source,
    output: Output,
    is_interrupted: Callable[[], bool],
    most_waiting_s: float,
) -> None:
    """Until the audio ends, or Ctrl-C; most_waiting_s 0 takes audio when all else is done.

    An error of the source or of a look ends the audio, too: what was heard is shown before it is
    raised.
    """
    failures: list[StapesError] = []

    nothing: list[StreamEvent] = []

    def poll() -> None:
        for event in _kept(failures, stream.poll, nothing):
            output.show(event)

    def feed() -> bool:
        return _feed(stream, source, most_waiting_s)

    while not is_interrupted() and _kept(failures, feed, False) and not failures:
        poll()
    stream.end()
    while stream.pending:
        poll()
    if failures:
        poll()  # what was known when the last look failed
        raise failures[0]


def _kept(failures: list[StapesError], call: Callable[[], _T], otherwise: _T) -> _T:
    """What a call gives; an error is kept instead of raised."""
    try:
        return call()
    except StapesError as error:
        failures.append(error)
        return otherwise


def _feed(stream: Stream, source: Source, most_waiting_s: float) -> bool:
    """Feed what has come, and wait for it when there is nothing else to do; False at the end."""
    wait_s = 0.0 if stream.pending else _WAIT_S
    try:
        while not stream.pending or stream.waiting_s < most_waiting_s:
            block = source.take(wait_s)
            if block is None:
                return True
            stream.feed(block)
            wait_s = 0.0
    except EOFError:
        return False
    return True
