"""The way from a request to samples, stage by stage; what is common to all tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.decoder import FinishReason
from stapes.errors import AudioError, CancelledError, RequestError
from stapes.models.vevo2.autoregressive.codes import GeneratedCodes
from stapes.models.vevo2.autoregressive.prompt import CodeRequest
from stapes.models.vevo2.parts import Parts
from stapes.models.vevo2.reference import Reference
from stapes.models.vevo2.request import VoiceOptions, VoiceRequest
from stapes.models.vevo2.sound import OnProgress, ShouldCancel, VoiceProgress, VoiceTimings
from stapes.models.vevo2.tasks import find_task
from stapes.models.vevo2.voice import HOP, SAMPLE_RATE

F32 = NDArray[np.float32]
Codes = NDArray[np.int32]

SHORTEST_S = 1.0
"""Seconds of a reference below which there is a warning: it holds too little of a voice."""


@dataclass(frozen=True, eq=False)
class Job:
    """One request under way; its parts are loaded.

    Attributes:
        parts, request, options, seed: what is done, and with what.
        pieces: how many pieces of it there are.
        timings: to which each stage adds its time.
        warnings: sentences, in order.
    """

    parts: Parts
    request: VoiceRequest
    options: VoiceOptions
    seed: int
    pieces: int = 1
    on_progress: OnProgress | None = None
    should_cancel: ShouldCancel | None = None
    timings: VoiceTimings = field(default_factory=VoiceTimings)
    warnings: list[str] = field(default_factory=list)

    def piece_seed(self, piece: int) -> int:
        """The seed of a piece: the request's for the first, so that it repeats by itself."""
        if piece == 0:
            return self.seed
        mixed = np.random.SeedSequence((self.seed, piece)).generate_state(1, np.uint64)
        return int(mixed[0] >> np.uint64(1))

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            before = getattr(self.timings, stage)
            setattr(self.timings, stage, before + time.perf_counter() - started)

    def report(self, **progress: Any) -> None:
        """Tell how far it is."""
        if self.on_progress is not None:
            self.on_progress(VoiceProgress(pieces=self.pieces, **progress))

    def check_cancelled(self) -> None:
        """CancelledError when the caller wants no more."""
        if self.should_cancel is not None and self.should_cancel():
            raise CancelledError("Cancelled before all of the sound was there.")

    # -- recordings --------------------------------------------------------------------------------

    def heard(self, recording: Reference) -> Reference:
        """As much of a recording as Whisper hears, from its beginning."""
        most = self.parts.content_style.whisper_seconds
        return (
            recording if recording.seconds <= most else recording.first(round(most * SAMPLE_RATE))
        )

    def pitch_steps(self, recording: Reference) -> int:
        """Semitones by which a recording is shifted towards the timbre.

        AudioError when they must be estimated and there is no voiced part.
        """
        if self.options.pitch_steps is not None:
            return self.options.pitch_steps
        if not find_task(self.request.task).pitch_shift:
            return 0
        try:
            return recording.steps_to(self.heard(self.request.timbre_sound))
        except AudioError as error:
            sentence = str(error).removesuffix(".")
            raise AudioError(f"{sentence} (pitch_steps; 0 shifts nothing).") from error


def checked_reference(job: Job, recording: Reference, *, cut: bool) -> Reference:
    """A recording of a voice or style: at most as long as Whisper hears, cut where that is allowed.

    Raises:
        RequestError: it is longer, and cutting it would part it from its text.
    """
    most = job.parts.content_style.whisper_seconds
    if recording.seconds < SHORTEST_S:
        job.warnings.append(f"{recording.name} has {recording.seconds:.2f} s: little of a voice.")
    if recording.seconds <= most:
        return recording
    if not cut:
        raise RequestError(
            f"{recording.name} has {recording.seconds:.1f} s, of which the model hears {most:g}; "
            "give a shorter recording with its text."
        )
    job.warnings.append(
        f"{recording.name} has {recording.seconds:.1f} s; the first {most:g} are used."
    )
    return job.heard(recording)


def checked_prosody(job: Job, recording: Reference) -> Reference:
    """A recording whose prosody is followed. RequestError if no answer could be as long."""
    most = job.options.longest_answer_s
    seconds = job.options.duration_s or recording.seconds
    if seconds > most:
        raise RequestError(
            f"{recording.name} has {seconds:.1f} s, more than the {most:g} that the model writes."
        )
    return recording


# -- the autoregressive stage ----------------------------------------------------------------------


def code_request(job: Job, text: str, style: Reference | None) -> CodeRequest:
    """What the autoregressive stage is asked: codes of all recordings, shifted where they must be.

    The style's recording is shifted as well as the prosody's, each by the steps from its own voice
    to the timbre's; the timbre's own codes never are.
    """
    request, parts = job.request, job.parts
    task = find_task(request.task)
    with job.timed("reference"):
        steps = 0 if style is None else job.pitch_steps(style)
        style_codes: Codes | tuple[()] = ()
        style_prosody: Codes | tuple[()] = ()
        asked: Codes | tuple[()] = ()
        if style is not None:
            style_codes = style.content_style(parts.content_style, steps)
        if task.prosody is not None:
            source = request.sound(task.prosody)
            assert source is not None
            asked = source.prosody(parts.prosody, job.pitch_steps(source), job.options.duration_s)
            if style is not None:
                style_prosody = style.prosody(parts.prosody, steps)
    return CodeRequest(
        text=text,
        task=request.task,
        style_text="" if style is None else style.text,
        style_codes=style_codes,
        style_prosody=style_prosody,
        prosody_codes=asked,
    )


def written_codes(job: Job, asked: CodeRequest, piece: int) -> GeneratedCodes:
    """The codes that the autoregressive stage writes. CancelledError when it is cut off."""
    options = job.options.codes(job.piece_seed(piece))
    with job.timed("codes"), job.parts.ar.stream(asked, options, job.should_cancel) as stream:
        for done, _ in enumerate(stream, 1):
            job.report(piece=piece, stage="codes", done=done, total=options.max_new_tokens)
        written = stream.result()
    if written.finish_reason == "cancelled":
        raise CancelledError(f"Cancelled after {len(written.codes)} codes.")
    return written


def length_warning(job: Job, finish_reason: FinishReason, text: str) -> tuple[str, ...]:
    """What is said of a text that may not be finished."""
    if finish_reason != "length":
        return ()
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    return (
        f"the model was still speaking after {job.options.longest_answer_s:g} s, and was cut off, "
        f"in {shown!r}.",
    )


# -- from codes to samples -------------------------------------------------------------------------


def samples_of(job: Job, codes: Codes, timbre: Reference, piece: int) -> F32:
    """The sound of codes in a voice: f32 [480 * frames].

    Codes and mel of the timbre's recording go in front. There are 4 frames for each code, so what
    its mel lacks of its last code, up to 3 frames, is heard at the beginning.
    """
    parts = job.parts
    with job.timed("reference"):
        prompt = timbre.content_style(parts.content_style)
        mel = timbre.mel(parts.mel)

    def on_step(done: int, total: int) -> None:
        job.report(piece=piece, stage="mel", done=done, total=total)

    with job.timed("mel"):
        drawn = parts.flow_matching.mel(
            np.concatenate([prompt, codes]),
            mel,
            job.options.flow(job.piece_seed(piece)),
            progress=on_step,
            should_cancel=job.should_cancel,
        )
    job.check_cancelled()
    with job.timed("samples"):
        return parts.vocoder.samples(drawn)


def lead_samples(job: Job, timbre: Reference) -> int:
    """Samples of the timbre's last code that are heard before a result begins: up to 3 frames."""
    codes = timbre.content_style(job.parts.content_style).size
    return HOP * job.parts.flow_matching.frames(codes, timbre.voice.frames)
