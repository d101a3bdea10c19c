"""What `stapes speak` and `stapes convert-voice` do once their options are understood."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from stapes.cli import messages, stdout
from stapes.cli.exits import DONE
from stapes.cli.interrupt import interruptible
from stapes.cli.progress import reporter_for_stderr
from stapes.cli.ready import ready_voice
from stapes.cli.tracing import tracing
from stapes.errors import RequestError
from stapes.output.files import STDIN

if TYPE_CHECKING:
    from stapes.graph import Tracer
    from stapes.models.vevo2.pipeline import VoiceModel
    from stapes.models.vevo2.reference import Reference
    from stapes.models.vevo2.request import VoiceOptions, VoiceRequest
    from stapes.models.vevo2.sound import VoiceAudio

_OF_THE_MODEL = ("weights", "encoder_weights", "acoustic_weights", "kv", "threads", "whisper")
_OF_THE_CALL = ("out", "force", "as_json", "model", "trace", "no_level", *_OF_THE_MODEL)


@dataclass(frozen=True)
class Recording:
    """A file for one role of the task, and what is said in it."""

    file: str
    text: str | None = None


@dataclass(frozen=True)
class Job:
    """What one call of a command asks for.

    Attributes:
        task, text: as in `VoiceRequest`.
        recordings: by role: source, melody, style, timbre.
        given: the values of `voice_options`.
    """

    task: str
    text: str
    recordings: dict[str, Recording]
    given: dict[str, Any]

    @property
    def out(self) -> Path:
        """The file that is written."""
        return Path(self.given["out"])

    def options(self) -> VoiceOptions:
        """How the sound is made. RequestError for a wrong value."""
        from stapes.models.vevo2.request import VoiceOptions

        values = {name: v for name, v in self.given.items() if name not in _OF_THE_CALL}
        if self.given["no_level"]:
            values["level_db"] = None
        return VoiceOptions(**values)


def run(job: Job) -> int:
    """Do the job; what can be refused without the model is."""
    options = job.options()
    _check_output(job.out, [r.file for r in job.recordings.values()], job.given["force"])
    request = _request(job)
    with tracing(job.given["trace"]) as tracer:
        model = _load(job, request, tracer)
        with interruptible() as is_interrupted, reporter_for_stderr().speaking(job.out.name) as bar:
            audio = model.run(request, options, bar, is_interrupted)
    _finish(job, audio)
    return DONE


def text_of(given: str) -> str:
    """The text itself, or what standard input holds."""
    if given != STDIN:
        return given
    if sys.stdin is None or sys.stdin.isatty():
        raise RequestError("standard input (-) holds no text: pipe one into the command.")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"standard input is not UTF-8 text: byte {error.start} is "
            f"0x{error.object[error.start]:02x}."
        ) from error


def recordings(**files: tuple[str | None, str | None]) -> dict[str, Recording]:
    """The recordings that are given, by role, from (file, text).

    Raises:
        RequestError: a text is given without its recording.
    """
    found: dict[str, Recording] = {}
    for role, (file, text) in files.items():
        if file is not None:
            found[role] = Recording(file, text)
        elif text is not None:
            name = "voice" if role == "timbre" else role
            raise RequestError(f"--{name}-text needs --{name}: it is what is said there.")
    return found


def _check_output(out: Path, inputs: Sequence[str], force: bool) -> None:
    from stapes.output.sound_file import check_sound_file

    check_sound_file(out)
    for file in inputs:
        if file != STDIN and os.path.realpath(file) == os.path.realpath(out):
            raise RequestError(f"{out} is one of the recordings, which would be lost.")
    if out.exists() and not force:
        raise RequestError(f"{out} exists; --force replaces it.")


def _request(job: Job) -> VoiceRequest:
    """The request, its recordings read: two roles of one file are one recording."""
    from stapes.models.vevo2.reference import read_reference
    from stapes.models.vevo2.request import VoiceRequest

    read: dict[Recording, Reference] = {}
    roles: dict[str, Reference] = {}
    for role, recording in job.recordings.items():
        if recording not in read:
            read[recording] = read_reference(_source(recording.file), recording.text)
        roles[role] = read[recording]
    return VoiceRequest(job.task, job.text, **roles)


def _source(file: str) -> str | BinaryIO:
    if file != STDIN:
        return file
    if sys.stdin is None or sys.stdin.isatty():
        raise RequestError("standard input (-) holds no recording: pipe a file into it.")
    return sys.stdin.buffer


def _load(job: Job, request: VoiceRequest, tracer: Tracer | None) -> VoiceModel:
    import stapes
    from stapes.models.vevo2.tasks import find_task

    name, given = job.given["model"], {key: job.given[key] for key in _OF_THE_MODEL}
    model = stapes.load_voice(ready_voice(name), **given, tracer=tracer)
    messages.note(f"the weights of {name} are licensed {model.license}")
    with reporter_for_stderr().loading(name):
        model.parts.prepare(find_task(request.task))
    return model


def _finish(job: Job, audio: VoiceAudio) -> None:
    """Write the sound, and say what there is to say."""
    from stapes.output.sound_file import write_sound

    write_sound(job.out, audio.samples, audio.sample_rate)
    for sentence in audio.warnings:
        messages.warning(job.out.name, sentence)
    if job.given["as_json"]:
        stdout.write(json.dumps(to_object(job.out, audio), ensure_ascii=False) + "\n", "utf-8")
        return
    pieces = f" in {audio.pieces} pieces" if audio.pieces > 1 else ""
    messages.note(
        f"wrote {job.out}: {audio.duration_s:.2f} s of sound{pieces}, made in "
        f"{audio.timings_s.total:.1f} s, seed {audio.seed}"
    )


def to_object(out: Path, audio: VoiceAudio) -> dict[str, object]:
    """The object of a sound; names and order of its fields are part of the interface."""
    return {
        "file": str(out),
        "task": audio.task,
        "duration_s": round(audio.duration_s, 6),
        "sample_rate": audio.sample_rate,
        "seed": audio.seed,
        "pieces": audio.pieces,
        "pitch_steps": audio.pitch_steps,
        "finish_reason": audio.finish_reason,
        "warnings": list(audio.warnings),
        "codes": audio.codes.tolist(),
        "timings_s": asdict(audio.timings_s),
    }
