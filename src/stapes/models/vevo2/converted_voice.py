"""Tasks that keep the style of their source: its codes go straight to flow matching."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stapes.models.vevo2.joining import F32, crossfaded
from stapes.models.vevo2.reference import Reference
from stapes.models.vevo2.stages import Job, lead_samples, samples_of
from stapes.models.vevo2.voice import HOP

Codes = NDArray[np.int32]


def converted(
    job: Job, pieces: Sequence[Reference], timbre: Reference, pitch_steps: int
) -> tuple[F32, Codes]:
    """The sound of a source in another voice, as long as the source to the frame, and its codes.

    Args:
        job: the request.
        pieces: of the source, which overlap; each is short enough for the model.
        timbre: whose voice is heard.
        pitch_steps: semitones by which the source is shifted.
    """
    found: list[Codes] = []

    def sounds() -> Iterator[F32]:
        for index, piece in enumerate(pieces):
            job.check_cancelled()
            with job.timed("reference"):
                codes = piece.content_style(job.parts.content_style, pitch_steps)
            found.append(codes)
            samples = samples_of(job, codes, timbre, index)[lead_samples(job, timbre) :]
            yield samples[: piece.voice.frames * HOP]

    samples = np.concatenate(list(crossfaded(sounds())))
    return samples, np.concatenate(found)
