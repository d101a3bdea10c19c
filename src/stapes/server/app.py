"""The web application: routes, errors, and what they share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stapes.decoder import Decoder
from stapes.errors import StapesError
from stapes.models.qwen3_asr.pipeline import default_width
from stapes.server import (
    alignments,
    listening,
    page_routes,
    speech,
    status,
    subtitles,
    transcriptions,
    writing,
)
from stapes.server.channel import ClientLeftError
from stapes.server.config import ServerConfig
from stapes.server.failures import INTERNAL, ApiError, translated
from stapes.server.lingering import Lingering
from stapes.server.metrics import Counted, Metrics
from stapes.server.scheduling import Lane, Line, Worker
from stapes.server.scheduling.worker import RETRY_STOPPING_S
from stapes.server.security import Guard
from stapes.server.served import Served
from stapes.server.shared import Shared
from stapes.server.uploads import UploadGate
from stapes.system import available_memory_bytes

_LOG = logging.getLogger("stapes.server")
_LONGEST_PIECE_S = 30.0
_KEPT_SHARE = 0.1  # of the free memory, for caches that are kept for prompts to come


_STOPPING = ApiError(
    503,
    "The server is stopping.",
    None,
    "busy",
    {"Retry-After": str(RETRY_STOPPING_S), "Connection": "close"},
)


class Caught:
    """ASGI middleware: a mistake of ours is written down, and a client told nothing of it.

    Nor is it one when the server, at its end, waits no longer for an upload or a reader.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except asyncio.CancelledError:
            if scope["type"] == "lifespan":
                raise
            if scope["type"] == "http" and not started:
                await _STOPPING.response()(scope, receive, send)
        except Exception as error:
            if scope["type"] == "lifespan":
                raise
            _LOG.error("%s failed", scope["path"], exc_info=error)
            if scope["type"] == "http" and not started:
                await INTERNAL.response()(scope, receive, send)


@dataclass(frozen=True)
class App:
    """A web application, and the threads behind it: the worker, and a line for each voice model."""

    web: FastAPI
    worker: Worker
    lines: dict[str, Line] = field(default_factory=dict)

    @property
    def places_taken(self) -> int:
        """Requests that have a place: they upload, wait, run, or are being answered."""
        return self.worker.places_taken + sum(line.places_taken for line in self.lines.values())

    def drain(self) -> None:
        """Take no more requests; those that have a place go on."""
        self.worker.drain()
        for line in self.lines.values():
            line.drain()


def create_app(served: Served, config: ServerConfig, slots: int | None = None) -> App:
    """A server for models that are loaded; it works from its start-up to its shutdown.

    Args:
        served: the models.
        config: what is permitted.
        slots: requests to a model that run side by side; None chooses by threads and memory.
    """
    worker = Worker(_lanes(served, slots), config.max_queue, config.max_streams)
    lines = {name: Line(name, config.max_queue) for name in served.speakers}
    metrics = Metrics(worker, lines)

    @asynccontextmanager
    async def lifespan(web: FastAPI) -> AsyncIterator[None]:
        threads: list[Worker | Line] = [worker, *lines.values()]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for thread in reversed(threads):
                thread.stop()

    # No pages of its own: they would load scripts from elsewhere.
    web = FastAPI(
        title="stapes", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    places = sum(lane.slots for lane in worker.lanes.values()) + config.max_queue
    web.state.shared = Shared(served, config, worker, metrics, UploadGate(places), lines)
    audio, others = (transcriptions, alignments, subtitles, speech), (writing, listening, status)
    for module in (*audio, *others, page_routes):
        web.include_router(module.router)
    _handle_errors(web, metrics)
    web.add_middleware(Guard, config=config)
    web.add_middleware(Caught)
    web.add_middleware(Counted, metrics=metrics)
    web.add_middleware(Lingering)  # the last one added comes first
    return App(web, worker, lines)


def _lanes(served: Served, slots: int | None) -> list[Lane]:
    free = available_memory_bytes()
    pool_bytes = None if free is None else int(_KEPT_SHARE * free)
    models: list[tuple[str, Decoder]] = []
    models += [(name, model.decoder) for name, model in served.speech.items()]
    models += [(name, model.decoder) for name, model in served.text.items()]
    return [
        Lane(name, decoder, slots or default_width(decoder, _LONGEST_PIECE_S), pool_bytes)
        for name, decoder in models
    ]


def _handle_errors(web: FastAPI, metrics: Metrics) -> None:
    """Every error in OpenAI's shape, and no traceback to a client."""

    async def known(request: Request, error: Exception) -> Response:
        del request
        told = translated(error)
        return (told or INTERNAL).response()

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            message = f"There is no {request.url.path!r:.100}."
        elif error.status_code == 405:
            message = f"{request.url.path} cannot be asked with {request.method}."
        else:
            message = str(error.detail)
        return ApiError(error.status_code, message, headers=error.headers).response()

    async def left(request: Request, error: Exception) -> Response:
        del request, error
        metrics.disconnected.inc()
        return Response(status_code=499)  # nobody reads it

    for kind in (ApiError, StapesError, MemoryError):
        web.add_exception_handler(kind, known)
    web.add_exception_handler(HTTPException, of_http)
    web.add_exception_handler(ClientLeftError, left)
