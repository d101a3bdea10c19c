"""WebSocket /v1/audio/stream: sound in, events of live transcription out.

The client sends PCM in binary messages of any length, and {"type": "finish"} at its end; the server
sends JSON objects: "ready", then "partial", "committed", "final" and "notice" events, at last
"done". An "error" ends the stream. docs/server.md shows it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import Field
from starlette.websockets import WebSocket, WebSocketDisconnect

from stapes.audio.mix import MAX_RATE, MIN_RATE, Mixdown
from stapes.server.channel import Channel
from stapes.server.failures import INTERNAL, ApiError, translated
from stapes.server.fields import Fields, Language, read_fields
from stapes.server.scheduling import LiveTask
from stapes.server.security import KEY_PROTOCOL
from stapes.server.shared import Shared, shared_of
from stapes.server.transcriptions import forced_language

router = APIRouter()

PROTOCOL = "stapes"
_POLICY, _BAD_DATA, _LATER, _FAILED, _NORMAL = 1008, 1007, 1013, 1011, 1000


class ListenFields(Fields):
    """The query of the address."""

    model: str | None = None
    language: Language = None
    prompt: str = ""
    sample_rate: Annotated[int, Field(ge=MIN_RATE, le=MAX_RATE)] = 16_000
    encoding: Literal["s16le", "f32le"] = "s16le"


class PcmReader:
    """Bytes of one channel -> samples at 16 kHz; messages may end within a sample.

    Args:
        sample_rate: Hz.
        encoding: "s16le" or "f32le".
    """

    def __init__(self, sample_rate: int, encoding: str) -> None:
        self._rate = sample_rate
        self._dtype = np.dtype({"s16le": "<i2", "f32le": "<f4"}[encoding])
        self._rest = b""
        self._mix = Mixdown("The stream")

    def feed(self, data: bytes) -> NDArray[np.float32]:
        """Samples f32 [n] that are complete. ApiError when one is not finite."""
        data = self._rest + data
        whole = len(data) - len(data) % self._dtype.itemsize
        self._rest = data[whole:]
        block = np.frombuffer(data[:whole], self._dtype)[np.newaxis]
        samples = self._mix.add(block, self._rate)
        if not self._mix.is_finite:
            raise ApiError(
                400, "The stream holds values that are not numbers.", None, "invalid_audio"
            )
        return samples

    def finish(self) -> NDArray[np.float32]:
        """What the resampler still held."""
        return self._mix.finish() if self._mix.duration_s else np.zeros(0, np.float32)


@router.websocket("/v1/audio/stream")
async def listen(socket: WebSocket) -> None:
    """Transcribe a live stream."""
    offered = socket.scope.get("subprotocols", [])
    keys = [name for name in offered if name.startswith(KEY_PROTOCOL)]
    await socket.accept(PROTOCOL if PROTOCOL in offered else keys[0] if keys else None)
    try:
        await _serve(socket, shared_of(socket))
    except WebSocketDisconnect:
        pass
    except Exception as error:
        await _report(socket, shared_of(socket), error)


async def _serve(socket: WebSocket, shared: Shared) -> None:
    fields = read_fields(ListenFields, dict(socket.query_params))
    open_stream = shared.served.open_stream
    if open_stream is None or not shared.served.speech:
        raise ApiError(501, "No model for live transcription is loaded.", None, "no_live_model")
    name = fields.model or next(iter(shared.served.speech))
    model, forced = shared.served.transcriber(name), forced_language(fields.language)
    with shared.worker.reserve(name, live=True) as place:
        channel = Channel(None)  # the client is watched by reading from it
        task = LiveTask(
            channel.tell,
            lambda batch: open_stream(model, forced, fields.prompt, batch),
            shared.config.max_upload_bytes,
        )
        place.submit(task)
        await socket.send_json({"type": "ready", "model": name, "sample_rate": fields.sample_rate})
        reading = asyncio.create_task(_read(socket, task, fields, shared.config.stream_idle_s))
        sending = asyncio.create_task(_send(socket, channel))
        try:
            await _both(reading, sending)
        finally:
            reading.cancel()
            sending.cancel()
            shared.metrics.listened(name, task.pushed_s)
    await socket.send_json({"type": "done"})
    await socket.close(_NORMAL)


async def _both(reading: asyncio.Task[None], sending: asyncio.Task[None]) -> None:
    """Wait for all events to be sent, or for an error of either."""
    done, _ = await asyncio.wait({reading, sending}, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    await sending


async def _read(socket: WebSocket, task: LiveTask, fields: ListenFields, idle_s: float) -> None:
    """Hand sound on until the client says that it has ended.

    However far ahead the client is, it is read on: only so is its end seen at once.
    """
    reader = PcmReader(fields.sample_rate, fields.encoding)
    while True:
        message = await _next(socket, idle_s)
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", _NORMAL))
        if message.get("bytes") is not None:
            task.push(reader.feed(message["bytes"]))
        elif _is_end(message["text"]):
            task.push(reader.finish())
            task.end()
            break
    await _until_closed(socket)


async def _next(socket: WebSocket, idle_s: float) -> Mapping[str, Any]:
    """The next message. ApiError when none comes for so many seconds."""
    try:
        return await asyncio.wait_for(socket.receive(), idle_s)
    except TimeoutError:
        reason = f"Nothing came for {idle_s:g} s, and no end of the stream."
        raise ApiError(408, reason, None, "too_slow") from None


async def _until_closed(socket: WebSocket) -> None:
    """The sound has ended: nothing but the end of the connection may come."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
    raise WebSocketDisconnect


def _is_end(text: str) -> bool:
    try:
        if json.loads(text) == {"type": "finish"}:
            return True
    except (ValueError, RecursionError):
        pass
    raise ApiError(
        400,
        'Text messages must be {"type": "finish"}; sound is sent in binary ones.',
        None,
        "invalid_message",
    )


async def _send(socket: WebSocket, channel: Channel) -> None:
    while (update := await channel.next()) is not None:
        await socket.send_json(_object(update.value))


def _object(event: Any) -> dict[str, Any]:
    values = asdict(event)
    for told in (values, *values.get("words", ())):
        for name in told.keys() & {"start_s", "end_s", "lag_s"}:
            told[name] = round(told[name], 3)
    return values


async def _report(socket: WebSocket, shared: Shared, error: Exception) -> None:
    """Tell the client what went wrong, if it is still there, and close."""
    told = translated(error)
    if told is None:
        shared.failed(error)
    told = told or INTERNAL
    code = {400: _BAD_DATA, 503: _LATER, 500: _FAILED}.get(told.status, _POLICY)
    try:
        await socket.send_json({"type": "error", **told.body()})
        await socket.close(code)
    except (RuntimeError, WebSocketDisconnect):
        pass  # it is gone
