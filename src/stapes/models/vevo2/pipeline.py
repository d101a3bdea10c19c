"""Vevo2 as a whole: text and recordings in, sound out."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from stapes.models.vevo2.converted_voice import converted
from stapes.models.vevo2.joining import cuts, levelled
from stapes.models.vevo2.layout import LICENSE
from stapes.models.vevo2.parts import Parts
from stapes.models.vevo2.reference import Recording, Reference, read_reference
from stapes.models.vevo2.request import VoiceOptions, VoiceRequest
from stapes.models.vevo2.sound import OnProgress, ShouldCancel, VoiceAudio, VoicePiece
from stapes.models.vevo2.spoken import checked_voices, spoken, texts_of
from stapes.models.vevo2.stages import Job, checked_reference
from stapes.models.vevo2.tasks import TASKS, find_task

_DEFAULTS = VoiceOptions()


class VoiceModel:
    """A model that speaks, sings and converts voices; its parts are loaded when they are needed.

    May be used from several threads.

    Attributes:
        name: the name or path it was loaded by.
        license: what its weights may be used for.
        tasks: what `request` can ask for.
        parts: the networks.
    """

    license = LICENSE
    tasks = TASKS

    def __init__(self, name: str, parts: Parts) -> None:
        self.name = name
        self.parts = parts

    @property
    def load_s(self) -> float:
        """Seconds that loading took, of the parts that are loaded."""
        return sum(self.parts.load_s.values())

    def reference(
        self, source: Recording, text: str | None = None, sample_rate: int | None = None
    ) -> Reference:
        """A recording whose codes are kept, to be given to any number of calls.

        Args:
            source: a path, the bytes of a file, an open binary file, or samples.
            text: what is said or sung in it.
            sample_rate: of samples, in Hz.

        Raises:
            AudioError: the recording cannot be used. RequestError: an argument is wrong.
        """
        return read_reference(source, text, sample_rate)

    def prepare_voice(self, voice: Reference) -> tuple[str, ...]:
        """Make sure that a reference can be spoken with; its codes and mel are kept with it.

        Returns:
            Sentences about what may be wrong with it.

        Raises:
            RequestError: it is longer than the model hears, and has a text.
            ModelError, CapacityError: see `speak`.
        """
        request = _speech("a", voice, None, None, None, False)
        job = self._job(request, VoiceOptions(seed=0), None, None)
        timbre = checked_voices(job).timbre
        timbre.content_style(self.parts.content_style)
        timbre.mel(self.parts.mel)
        return tuple(job.warnings)

    def speak(
        self,
        text: str,
        voice: Recording,
        *,
        voice_text: str | None = None,
        style: Recording | None = None,
        style_text: str | None = None,
        singing: bool = False,
        on_progress: OnProgress | None = None,
        should_cancel: ShouldCancel | None = None,
        **options: Any,
    ) -> VoiceAudio:
        """Say or sing a text in the voice of a recording. Long text is spoken in pieces.

        Args:
            text: of any length, in any of the model's languages.
            voice: a recording of 3 to 30 s of the voice, or what `reference` made of one.
            voice_text: what is said in it; without it words may be repeated or left out.
            style: another recording whose way of speaking is taken on; None: the voice's.
            style_text: what is said in that one.
            singing: sing it.
            on_progress: called with each code, and with each step of flow matching.
            should_cancel: asked between these; True ends with CancelledError.
            options: fields of `VoiceOptions`, seed among them.

        Raises:
            RequestError: an argument is wrong. AudioError: a recording cannot be used.
            ModelError: files of a part are missing or damaged, or the model wrote no codes.
            CapacityError: it does not fit into memory. CancelledError: see should_cancel.
        """
        request = _speech(text, voice, voice_text, style, style_text, singing)
        return self.run(request, VoiceOptions(**options), on_progress, should_cancel)

    def speak_pieces(
        self,
        text: str,
        voice: Recording,
        *,
        voice_text: str | None = None,
        style: Recording | None = None,
        style_text: str | None = None,
        singing: bool = False,
        on_progress: OnProgress | None = None,
        should_cancel: ShouldCancel | None = None,
        **options: Any,
    ) -> Iterator[VoicePiece]:
        """The same sound piece by piece as it is made; arguments and errors are those of `speak`.

        With a seed the samples of all pieces are those of `speak`, bit for bit.
        """
        request = _speech(text, voice, voice_text, style, style_text, singing)
        return self.pieces(request, VoiceOptions(**options), on_progress, should_cancel)

    def convert_voice(
        self,
        source: Recording,
        voice: Recording | None = None,
        *,
        style: Recording | None = None,
        style_text: str | None = None,
        text: str = "",
        singing: bool = False,
        on_progress: OnProgress | None = None,
        should_cancel: ShouldCancel | None = None,
        **options: Any,
    ) -> VoiceAudio:
        """Let another voice say or sing what a recording holds, in the source's style or another.

        Without a style, the source may have any length, and the result has the same to the frame.

        Args:
            source: the recording that is converted.
            voice: a recording of the voice; may be None with a style: the source's.
            style: a recording whose way of speaking or singing is taken on.
            style_text: what is said in it.
            text: with a style, what is said in the source.
            singing: the source sings: pitch is shifted with a style, too.
            on_progress: see `speak`.
            should_cancel: see `speak`.
            options: see `speak`.

        Raises:
            RequestError, AudioError, ModelError, CapacityError, CancelledError: see `speak`.
        """
        kind = "singing" if singing else "voice"
        way = "preserved" if style is None else "converted"
        request = VoiceRequest(
            f"style_{way}_{kind}_conversion",
            text,
            source=read_reference(source),
            style=None if style is None else read_reference(style, style_text),
            timbre=None if voice is None else read_reference(voice),
        )
        return self.run(request, VoiceOptions(**options), on_progress, should_cancel)

    def run(
        self,
        request: VoiceRequest,
        options: VoiceOptions = _DEFAULTS,
        on_progress: OnProgress | None = None,
        should_cancel: ShouldCancel | None = None,
    ) -> VoiceAudio:
        """Do any task: what `speak` and `convert_voice` do, editing, and following a melody.

        Raises:
            RequestError, AudioError, ModelError, CapacityError, CancelledError: see `speak`.
        """
        started = time.perf_counter()
        job = self._job(request, options, on_progress, should_cancel)
        is_written = find_task(request.task).autoregressive
        audio = _whole(job) if is_written else _conversion(job)
        audio.timings_s.load = self.load_s
        audio.timings_s.total = time.perf_counter() - started
        return audio

    def pieces(
        self,
        request: VoiceRequest,
        options: VoiceOptions = _DEFAULTS,
        on_progress: OnProgress | None = None,
        should_cancel: ShouldCancel | None = None,
    ) -> Iterator[VoicePiece]:
        """The sound of a task piece by piece; errors are those of `run`.

        A conversion that keeps the source's style is one piece: its level is that of the whole.
        """
        job = self._job(request, options, on_progress, should_cancel)
        if find_task(request.task).autoregressive:
            yield from spoken(job, texts_of(request, options), checked_voices(job))
            return
        audio = _conversion(job)
        yield VoicePiece(audio.samples, "", audio.codes, audio.finish_reason, 0, 1, audio.warnings)

    def _job(
        self,
        request: VoiceRequest,
        options: VoiceOptions,
        on_progress: OnProgress | None,
        should_cancel: ShouldCancel | None,
    ) -> Job:
        """The request, with every part that it needs."""
        task = find_task(request.task)
        seed = secrets.randbits(32) if options.seed is None else options.seed
        count = len(texts_of(request, options)) if task.autoregressive else 1
        if request.source is not None and not task.autoregressive:
            count = len(cuts(request.source.voice.samples))
        job = Job(self.parts, request, options, seed, count, on_progress, should_cancel)
        self.parts.prepare(task)
        recordings = (request.source, request.melody, request.style, request.timbre)
        job.warnings.extend(w for r in recordings if r is not None for w in r.voice.warnings)
        return job


def _speech(
    text: str,
    voice: Recording,
    voice_text: str | None,
    style: Recording | None,
    style_text: str | None,
    singing: bool,
) -> VoiceRequest:
    return VoiceRequest(
        "text_to_singing" if singing else "text_to_speech",
        text,
        style=None if style is None else read_reference(style, style_text),
        timbre=read_reference(voice, voice_text),
    )


def _whole(job: Job) -> VoiceAudio:
    """All pieces that are spoken, in one."""
    voices = checked_voices(job)
    pieces = list(spoken(job, texts_of(job.request, job.options), voices))
    cut_off = any(piece.finish_reason == "length" for piece in pieces)
    return VoiceAudio(
        samples=np.concatenate([piece.samples for piece in pieces]),
        codes=np.concatenate([piece.codes for piece in pieces]),
        seed=job.seed,
        task=job.request.task,
        pieces=len(pieces),
        pitch_steps=voices.pitch_steps,
        finish_reason="length" if cut_off else "stop",
        warnings=tuple(warning for piece in pieces for warning in piece.warnings),
        timings_s=job.timings,
    )


def _conversion(job: Job) -> VoiceAudio:
    """The source in another voice."""
    source = job.request.source
    assert source is not None, "checked when the request was made"
    timbre = checked_reference(job, job.request.timbre_sound, cut=True)
    with job.timed("reference"):
        steps = job.pitch_steps(source)
    places = cuts(source.voice.samples)
    pieces = [source] if len(places) == 1 else [source.cut(a, b) for a, b in places]
    samples, codes = converted(job, pieces, timbre, steps)
    return VoiceAudio(
        samples=levelled(samples, job.options.level_db),
        codes=codes,
        seed=job.seed,
        task=job.request.task,
        pieces=len(pieces),
        pitch_steps=steps,
        finish_reason="stop",
        warnings=tuple(job.warnings),
        timings_s=job.timings,
    )
