"""GET /health, /metrics and /v1/models."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stapes.server.failures import ApiError
from stapes.server.metrics import CONTENT_TYPE
from stapes.server.served import Served
from stapes.server.shared import shared_of

router = APIRouter()

# Threads of its own: those that all share may be busy with long texts and recordings.
_PINGS = ThreadPoolExecutor(4, "stapes-ping")
_PATIENCE_S = 10.0  # for the worker's answer: one run of it may take seconds


@router.get("/health")
async def health(request: Request) -> Response:
    """Whether the worker works: 200, or 503 when it is stuck, dead or stopping."""
    shared = shared_of(request)
    worker = shared.worker
    ping = partial(worker.ping, _PATIENCE_S)
    answered_s = await asyncio.get_running_loop().run_in_executor(_PINGS, ping)
    status = "ok" if answered_s is not None else "stuck"
    status = "stopping" if worker.draining else status
    lanes = {
        name: {"slots": lane.slots, "running": lane.running, "waiting": lane.waiting}
        for name, lane in worker.lanes.items()
    }
    for name, line in shared.lines.items():
        lanes[name] = {"slots": 1, "running": line.running, "waiting": line.waiting}
    body = {"status": status, "worker_s": answered_s, "models": lanes}
    return JSONResponse(body, 200 if status == "ok" else 503)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    return Response(shared_of(request).metrics.text(), headers={"Content-Type": CONTENT_TYPE})


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """The loaded models."""
    return JSONResponse({"object": "list", "data": _models(shared_of(request).served)})


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> Response:
    """One of them."""
    found = [each for each in _models(shared_of(request).served) if each["id"] == name]
    if not found:
        raise ApiError(404, f"There is no model {name!r:.200}.", "model", "model_not_found")
    return JSONResponse(found[0])


def _models(served: Served) -> list[dict[str, Any]]:
    kinds = {**dict.fromkeys(served.speech, "speech"), **dict.fromkeys(served.text, "text")}
    if served.aligner is not None:
        kinds[served.aligner_name] = "aligner"
    kinds |= dict.fromkeys(served.speakers, "voice")
    found: list[dict[str, Any]] = [
        {"id": name, "object": "model", "created": served.since, "owned_by": "stapes", "kind": kind}
        for name, kind in kinds.items()
    ]
    for each in found:
        if speaker := served.speakers.get(each["id"]):
            each |= {"voices": list(speaker.voices), "license": speaker.model.license}
    return found
