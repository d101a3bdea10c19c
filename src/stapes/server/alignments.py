"""POST /v1/audio/alignments: when the words of a text were spoken."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import BinaryIO

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stapes.audio import SAMPLE_RATE
from stapes.graph import NO_TRACE
from stapes.models.recording import ReadingLimits, Recording
from stapes.options import TranscribeOptions
from stapes.server.channel import Channel
from stapes.server.failures import ApiError
from stapes.server.fields import AlignmentFields, read_fields
from stapes.server.formats import words_of
from stapes.server.scheduling import CallTask
from stapes.server.shared import shared_of
from stapes.server.transcriptions import forced_language

router = APIRouter()

_MOST_S = 300  # which aligners can place; one look at it is one step of the worker


@router.post("/v1/audio/alignments")
async def align(request: Request) -> Response:
    """Align a text with an uploaded recording."""
    shared = shared_of(request)
    form = await shared.form(request)
    try:
        fields = read_fields(AlignmentFields, form.fields)
        aligner = shared.served.needed_aligner()
        if fields.model is not None and fields.model != shared.served.aligner_name:
            raise ApiError(
                404, f"There is no aligner {fields.model!r}.", "model", "model_not_found"
            )
        language = forced_language(fields.language)
        with shared.worker.reserve(next(iter(shared.worker.lanes))) as place:
            limits = ReadingLimits(_MOST_S, shared.config.limits.most_work_s)
            with form.take_file() as file:
                samples = await asyncio.to_thread(read_samples, file, limits)
            channel = Channel(request.receive)
            call = partial(
                aligner.align_samples, samples, fields.text, start_s=0.0, language=language
            )
            place.submit(CallTask(channel.tell, call))
            try:
                words = await channel.result()
            finally:
                channel.close()
    finally:
        form.close()
    return JSONResponse(
        {
            "text": fields.text,
            "language": language,
            "duration": round(samples.size / SAMPLE_RATE, 3),
            "words": words_of(words),
        }
    )


def read_samples(file: BinaryIO, limits: ReadingLimits) -> NDArray[np.float32]:
    """The whole of a short recording, f32 [n], mono 16 kHz. AudioError: see `Recording`."""
    options = TranscribeOptions(vad=False, chunk_seconds=300)
    with Recording(file, None, options, NO_TRACE, limits.check) as recording:
        return np.concatenate([piece.samples for piece in recording.pieces()])
