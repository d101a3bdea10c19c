"""POST /v1/audio/transcriptions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from stapes.decoder import SamplingOptions
from stapes.errors import RequestError
from stapes.models.qwen3_asr.model import Transcriber
from stapes.models.qwen3_asr.pieces import Piece
from stapes.options import TranscribeOptions
from stapes.server.channel import Channel
from stapes.server.failures import ApiError
from stapes.server.fields import TranscriptionFields, read_fields
from stapes.server.formats import Deltas, response_of, segment, usage, verbose, words_of
from stapes.server.scheduling import Place, Transcribed, TranscriptionTask, Update
from stapes.server.shared import Shared, shared_of
from stapes.server.sse import EventStream, event
from stapes.server.uploads import Form
from stapes.text.languages import canonical_language

router = APIRouter()


@router.post("/v1/audio/transcriptions")
async def transcribe(request: Request) -> Response:
    """Transcribe an uploaded recording."""
    shared = shared_of(request)
    form = await shared.form(request)
    try:
        fields = read_fields(TranscriptionFields, form.fields)
        model = shared.served.transcriber(fields.model)
        forced = forced_language(fields.language)
        place = shared.worker.reserve(fields.model)
        try:
            channel = Channel(request.receive)
            place.submit(_task(shared, channel, model, form, fields, forced))
        except BaseException:
            place.close()
            raise
    finally:
        form.close()
    return await _answer(shared, channel, place, fields)


def forced_language(language: str | None) -> str | None:
    """The model's name of a language. ApiError, naming the field, when it is not known."""
    try:
        return None if language is None else canonical_language(language)
    except RequestError as error:
        raise ApiError(400, str(error), "language", "invalid_value") from None


def _task(
    shared: Shared,
    channel: Channel,
    model: Transcriber,
    form: Form,
    fields: TranscriptionFields,
    forced: str | None,
) -> TranscriptionTask:
    aligner = None
    if "word" in fields.timestamp_granularities:
        aligner = shared.served.needed_aligner("timestamp_granularities")
    return TranscriptionTask(
        channel.tell,
        model,
        form.take_file(),
        TranscribeOptions(context=fields.prompt, vad=fields.vad),
        forced,
        shared.config.limits,
        SamplingOptions(temperature=fields.temperature) if fields.temperature else None,
        aligner,
    )


async def _answer(
    shared: Shared, channel: Channel, place: Place, fields: TranscriptionFields
) -> Response:
    """The response; the place is free once it has been sent, or nobody waits for it."""

    def close() -> None:
        place.close()
        channel.close()

    try:
        if fields.stream:
            first = await channel.next()  # so that what fails at once has its own status
            count = partial(shared.metrics.transcribed, fields.model)
            events = _events(channel, first, fields, count)
            return EventStream(events, close, shared.failed, shared.metrics.disconnected.inc)
        done = await channel.result()
        shared.metrics.transcribed(fields.model, done)
        close()
        return response_of(done, fields)
    except BaseException:
        close()
        raise


async def _events(
    channel: Channel,
    first: Update | None,
    fields: TranscriptionFields,
    count: Callable[[Transcribed], None],
) -> AsyncIterator[bytes]:
    """With verbose_json, each segment as it comes, and all of them at the end."""
    deltas, update, segments = Deltas(), first, 0
    is_verbose = fields.response_format == "verbose_json"
    while update is not None:
        piece: Piece = update.value
        if added := deltas.add(piece):
            yield event({"type": "transcript.text.delta", "delta": added})
        if is_verbose and piece.answer.text:
            yield event(_segment_event(segments, piece, fields))
            segments += 1
        update = await channel.next()
    done: Transcribed = await channel.result()
    count(done)
    body = {"type": "transcript.text.done", "text": done.transcript.text}
    told = verbose(done, fields) if is_verbose else {"usage": usage(done.transcript)}
    yield event(body | told)


def _segment_event(number: int, piece: Piece, fields: TranscriptionFields) -> dict[str, Any]:
    told = {"type": "transcript.text.segment"} | segment(number, piece, fields.temperature)
    asks_words = "word" in fields.timestamp_granularities
    return told | {"words": words_of(piece.words)} if asks_words else told
