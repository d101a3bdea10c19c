"""Figures for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stapes.server.scheduling import Lane, Line, Transcribed, Worker

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

_GAUGES: tuple[tuple[str, str, Callable[[Lane], float]], ...] = (
    ("stapes_waiting", "Requests whose turn has not come.", lambda lane: lane.waiting),
    ("stapes_running", "Requests that are worked on.", lambda lane: lane.running),
    ("stapes_answers", "Answers side by side.", lambda lane: len(lane.batch)),
    ("stapes_runs", "Runs of the decoder so far.", lambda lane: lane.steps),
    (
        "stapes_kept_cache_bytes",
        "KV caches kept for prompts to come.",
        lambda lane: lane.sessions.held_bytes,
    ),
)

_GAUGES_OF_LINES: dict[str, Callable[[Line], float]] = {
    "stapes_waiting": lambda line: line.waiting,
    "stapes_running": lambda line: line.running,
}


class Metrics:
    """All figures of one server, in a registry of its own."""

    def __init__(self, worker: Worker, lines: Mapping[str, Line]) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "stapes_requests", "Requests answered.", ("route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "stapes_request_seconds",
            "Seconds from a request to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._audio = Counter(
            "stapes_audio_seconds",
            "Seconds transcribed, or heard in live streams that have ended.",
            ("model",),
            registry=self.registry,
        )
        self._factor = Histogram(
            "stapes_real_time_factor",
            "Seconds that a recording took, from its turn to its text, by its own seconds.",
            ("model",),
            buckets=_FACTORS,
            registry=self.registry,
        )
        self._tokens = Counter(
            "stapes_tokens",
            "Tokens: prompt (read), reused (of these, not computed anew), new (written).",
            ("model", "kind"),
            registry=self.registry,
        )
        self.disconnected = Counter(
            "stapes_disconnected",
            "Requests whose client left before the end of the answer.",
            registry=self.registry,
        )
        self.spoken = Counter(
            "stapes_spoken_seconds", "Seconds of speech made.", ("model",), registry=self.registry
        )
        self._watch(worker, lines)
        ProcessCollector(registry=self.registry)

    def _watch(self, worker: Worker, lines: Mapping[str, Line]) -> None:
        """Gauges that are read when somebody asks."""
        for name, told, read in _GAUGES:
            gauge = Gauge(name, told, ("model",), registry=self.registry)
            for model, lane in worker.lanes.items():
                gauge.labels(model).set_function(partial(read, lane))
            if name in _GAUGES_OF_LINES:
                for model, line in lines.items():
                    gauge.labels(model).set_function(partial(_GAUGES_OF_LINES[name], line))

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request has been answered."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def transcribed(self, model: str, done: Transcribed) -> None:
        """A recording has been transcribed."""
        transcript = done.transcript
        self._audio.labels(model).inc(transcript.duration_s)
        if transcript.duration_s > 0:
            factor = transcript.timings_s.total / transcript.duration_s
            self._factor.labels(model).observe(factor)
        reused = sum(piece.result.reused_tokens for piece in done.pieces)
        self.wrote(model, transcript.tokens.prompt, reused, transcript.tokens.new)

    def listened(self, model: str, seconds: float) -> None:
        """A live stream has ended."""
        self._audio.labels(model).inc(seconds)

    def wrote(self, model: str, prompt: int, reused: int, new: int) -> None:
        """Tokens of an answer."""
        for kind, count in (("prompt", prompt), ("reused", reused), ("new", new)):
            self._tokens.labels(model, kind).inc(count)

    def text(self) -> bytes:
        """All of them, in Prometheus's text format."""
        return generate_latest(self.registry)


class Counted:
    """ASGI middleware that counts answers by the route's pattern, never by what a client wrote."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        status, started = 499, time.perf_counter()  # nothing was sent: the client has left

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "websocket.accept":
                status = 101
            elif message["type"] == "websocket.close" and status != 101:
                status = 403  # what a WebSocket that is closed before it is open becomes
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.answered(route, status, time.perf_counter() - started)
