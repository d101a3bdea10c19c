"""Tasks whose codes the autoregressive stage writes: speech, singing, editing, other styles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stapes.models.vevo2.autoregressive.codes import GeneratedCodes
from stapes.models.vevo2.joining import F32, levelled, with_pauses
from stapes.models.vevo2.reference import Reference
from stapes.models.vevo2.request import VoiceOptions, VoiceRequest
from stapes.models.vevo2.sound import VoicePiece
from stapes.models.vevo2.stages import (
    Job,
    checked_prosody,
    checked_reference,
    code_request,
    length_warning,
    samples_of,
    written_codes,
)
from stapes.models.vevo2.tasks import find_task
from stapes.text.sentences import speech_pieces


@dataclass(frozen=True, eq=False)
class Voices:
    """The recordings of a request, short enough for the model."""

    timbre: Reference
    style: Reference | None
    pitch_steps: int


def texts_of(request: VoiceRequest, options: VoiceOptions) -> Sequence[str]:
    """The pieces in which a text is spoken.

    A text that follows a prosody is one piece: the prosody is that of all of it.
    """
    if find_task(request.task).prosody is not None:
        return (" ".join(request.text.split()),)
    pieces = speech_pieces(request.text, options.longest_piece)
    return tuple(piece for piece in pieces if any(c.isalnum() for c in piece))


def checked_voices(job: Job) -> Voices:
    """The recordings, once their lengths are checked. RequestError for one that is too long."""
    request, task = job.request, find_task(job.request.task)
    style, timbre = request.style_sound, request.timbre_sound
    steps = 0
    if style is not None:
        style = checked_reference(job, style, cut=not style.text.strip())
        if not style.text.strip():
            job.warnings.append(
                f"{style.name} is given without its text: words may be repeated or left out."
            )
    if timbre is not request.style_sound:
        timbre = checked_reference(job, timbre, cut=True)
    elif style is not None:
        timbre = style
    if task.prosody is not None:
        prosody = request.sound(task.prosody)
        assert prosody is not None, "checked when the request was made"
        with job.timed("reference"):
            steps = job.pitch_steps(checked_prosody(job, prosody))
    return Voices(timbre, style, steps)


def spoken(job: Job, texts: Sequence[str], voices: Voices) -> Iterator[VoicePiece]:
    """The pieces one by one. Each has the level that is asked for, and fades at its seams."""
    written: list[GeneratedCodes] = []

    def sounds() -> Iterator[F32]:
        for piece, text in enumerate(texts):
            job.check_cancelled()
            written.append(written_codes(job, code_request(job, text, voices.style), piece))
            codes = np.array(written[-1].codes, np.int32)
            samples = samples_of(job, codes, voices.timbre, piece)
            yield levelled(samples, job.options.level_db)

    for piece, samples in enumerate(with_pauses(sounds(), len(texts))):
        reason = written[piece].finish_reason
        told = (*job.warnings,) if piece == 0 else ()
        yield VoicePiece(
            samples=samples,
            text=texts[piece],
            codes=np.array(written[piece].codes, np.int32),
            finish_reason=reason,
            index=piece,
            count=len(texts),
            warnings=(*told, *length_warning(job, reason, texts[piece])),
        )
