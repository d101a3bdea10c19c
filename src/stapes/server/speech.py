"""POST /v1/audio/speech: a text in one of the registered voices."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from stapes.models.vevo2.sound import VoicePiece
from stapes.models.vevo2.voice import SAMPLE_RATE
from stapes.output.sound_stream import SoundStream, StreamFormat
from stapes.server.channel import Channel, ClientLeftError
from stapes.server.fields import SpeechFields, read_fields
from stapes.server.scheduling import Making, Update
from stapes.server.served import Speaker
from stapes.server.shared import Shared, shared_of
from stapes.server.sse import EventStream, event
from stapes.server.uploads import read_body

router = APIRouter()

_MOST_BODY_BYTES = 2**18  # 4096 characters, each escaped as a pair of surrogates, and the rest
_SEED_BITS = 32

MEDIA_TYPES: dict[StreamFormat, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}


@dataclass(frozen=True)
class Part:
    """The bytes of one piece; those that end the file have none."""

    data: bytes
    piece: VoicePiece | None


@router.post("/v1/audio/speech")
async def speak(request: Request) -> Response:
    """Speak a text, piece by piece."""
    shared = shared_of(request)
    body = await read_body(request, _MOST_BODY_BYTES, shared.config.idle_s)
    fields = read_fields(SpeechFields, body)
    speaker = shared.served.speaker(fields.model)
    seed = secrets.randbits(_SEED_BITS) if fields.seed is None else fields.seed
    making = making_of(speaker, fields, seed)
    place = shared.lines[fields.model].reserve()
    channel = Channel(request.receive)

    def close() -> None:
        place.close()
        channel.close()

    try:
        place.submit(channel.tell, making)
        first = await channel.next()  # so that what fails at once has its own status
    except BaseException:
        close()
        raise
    parts = _counted(shared, fields.model, _parts(channel, first))
    headers = {"X-Seed": str(seed)}
    if fields.stream_format == "sse":
        left = shared.metrics.disconnected.inc
        response: Response = EventStream(_events(parts), close, shared.failed, left)
        response.headers.update(headers)
        return response
    return AudioStream(parts, MEDIA_TYPES[fields.response_format], headers, close, shared.failed)


def making_of(speaker: Speaker, fields: SpeechFields, seed: int) -> Making:
    """What makes the parts of an answer. ApiError when the voice is unknown."""
    voice = speaker.voice(fields.voice)
    steps = speaker.options.steps if fields.steps is None else fields.steps
    options = replace(speaker.options, seed=seed, steps=steps)

    def making(shall_end: Callable[[], bool]) -> Generator[Part]:
        pieces = speaker.model.speak_pieces(
            fields.input, voice, should_cancel=shall_end, **vars(options)
        )
        with closing(SoundStream(fields.response_format, SAMPLE_RATE)) as sound:
            for piece in pieces:
                yield Part(sound.add(piece.samples), piece)
            yield Part(sound.finish(), None)

    return making


async def _parts(channel: Channel, first: Update | None) -> AsyncIterator[Part]:
    update = first
    while update is not None:
        yield update.value
        update = await channel.next()


async def _counted(shared: Shared, model: str, parts: AsyncIterator[Part]) -> AsyncIterator[Part]:
    async for part in parts:
        if part.piece is not None:
            shared.metrics.spoken.labels(model).inc(part.piece.samples.size / SAMPLE_RATE)
        yield part


async def _events(parts: AsyncIterator[Part]) -> AsyncIterator[bytes]:
    """OpenAI's events; the last one tells what there is to know."""
    pieces: list[VoicePiece] = []
    async for part in parts:
        if part.piece is not None:
            pieces.append(part.piece)
        if part.data:
            audio = base64.b64encode(part.data).decode("ascii")
            yield event({"type": "speech.audio.delta", "audio": audio})
    yield event({"type": "speech.audio.done"} | _told(pieces))


def _told(pieces: list[VoicePiece]) -> dict[str, Any]:
    """Usage, which does not count the tokens of the prompt; length, and warnings if any."""
    codes = int(np.sum([piece.codes.size for piece in pieces]))
    samples = int(np.sum([piece.samples.size for piece in pieces]))
    told: dict[str, Any] = {
        "usage": {"input_tokens": None, "output_tokens": codes, "total_tokens": None},
        "duration": round(samples / SAMPLE_RATE, 3),
    }
    warnings = [warning for piece in pieces for warning in piece.warnings]
    return told | ({"warnings": warnings} if warnings else {})


class AudioStream(Response):
    """Sound as it comes. An error on the way breaks the connection, so that nobody takes it whole.

    Args:
        parts: of the sound.
        media_type: its kind.
        headers: of the response.
        close: is called at the end, however it comes.
        failed: is called with an error on the way.
    """

    def __init__(
        self,
        parts: AsyncIterator[Part],
        media_type: str,
        headers: dict[str, str],
        close: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        quick = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(headers=quick | headers, media_type=media_type)
        del self.headers["content-length"]
        self._parts, self._close, self._failed = parts, close, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        body: Callable[..., Message] = partial(dict, type="http.response.body")
        try:
            await send(start)
            async for part in self._parts:
                if part.data:
                    await send(body(body=part.data, more_body=True))
            await send(body(body=b"", more_body=False))
        except (ClientLeftError, OSError):
            pass
        except Exception as error:
            self._failed(error)
        finally:
            self._close()
