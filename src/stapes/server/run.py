"""Running the web application: sockets, signals, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from stapes.errors import RequestError
from stapes.server.app import App
from stapes.server.config import ServerConfig
from stapes.server.connections import HttpProtocol, WebSocketProtocol

_LOOK_S = 0.1  # how often a server that is stopping looks whether all is done
_START_S = 0.01  # between looks whether it has started
_GRACE_S = 5  # for responses that are being sent, and uploads; the work is done
_MOST_MESSAGE_BYTES = 2**20  # of a WebSocket
# The pong of a client that sends as fast as it can waits behind the sound in the sockets' buffers:
# some megabytes, which a slow network takes a while to carry.
_PONG_S = 60.0


class StoppingServer(uvicorn.Server):
    """A server that, once told to stop, answers 503 until what is under way is done.

    A second signal ends it at once.

    Args:
        config: of uvicorn.
        app: that is served.
        stop_s: longest wait for what is under way.
        on_stop: is called with the number of requests under way when the first signal comes.
    """

    def __init__(
        self, config: uvicorn.Config, app: App, stop_s: float, on_stop: Callable[[int], None]
    ) -> None:
        super().__init__(config)
        self._app, self._stop_s, self._on_stop = app, stop_s, on_stop
        self._told: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came, perhaps while this thread holds a lock: a tick does what needs one."""
        del sig, frame
        if self._told is not None:
            self.should_exit = self.force_exit = True
            # uvicorn would write how each thing that is broken off was broken off.
            logging.getLogger("uvicorn.error").disabled = True
            return
        self._told = time.monotonic()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to end."""
        if self._told is not None and not self._app.worker.draining:
            self._app.drain()
            self._on_stop(self._app.places_taken)
        if self._told is not None and not self.should_exit:
            late = time.monotonic() - self._told > self._stop_s
            self.should_exit = late or self._app.places_taken == 0
        return await super().on_tick(counter)


def bind(config: ServerConfig) -> socket.socket:
    """A listening socket. RequestError when the address cannot be used."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((config.host, config.port))
    except OSError as error:
        found.close()
        reason = error.strerror or str(error)
        raise RequestError(
            f"The server cannot listen at {config.host}, port {config.port}: {reason}."
        ) from error
    return found


def settings(app: App) -> uvicorn.Config:
    """How uvicorn serves an application."""
    return uvicorn.Config(
        app.web,
        http=HttpProtocol,
        ws=WebSocketProtocol,
        ws_max_size=_MOST_MESSAGE_BYTES,
        ws_ping_timeout=_PONG_S,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )


def run(
    app: App, config: ServerConfig, listening: socket.socket, on_stop: Callable[[int], None]
) -> bool:
    """Serve until a signal comes, SIGINT or SIGTERM; whether a second one broke requests off."""
    server = StoppingServer(settings(app), app, config.stop_s, on_stop)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server.serve(sockets=[listening]))
    return server.force_exit


@contextlib.contextmanager
def in_background(app: App, config: ServerConfig) -> Iterator[str]:
    """Serve in a thread for as long as a `with` block lasts; yields the address, without a slash.

    RequestError when the address cannot be used, or the application does not start.
    """
    with bind(config) as listening:
        server = StoppingServer(settings(app), app, config.stop_s, lambda running: None)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="stapes-web"
        )
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise RequestError("The server did not start.")
                time.sleep(_START_S)
            host, port = listening.getsockname()[:2]
            yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        finally:
            server.should_exit = True
            thread.join()
