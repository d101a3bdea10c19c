"""Connections that do not wait for ever for a request that does not come.

uvicorn closes a connection that is idle behind an answer, but neither one on which the headers of
a request never end, nor one whose request for a WebSocket cannot be read.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEAD_S = 20.0
_UNREADABLE = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\nThe request for a WebSocket cannot be read: a line of it may have "
    b"8,192 bytes.\n"
)


class HttpProtocol(H11Protocol):
    """A connection that is closed when the headers of a request take longer than `head_s` seconds.

    The time counts from the opening of the connection, or from the request's first byte.
    """

    head_s = HEAD_S

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The client may begin."""
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        super().data_received(data)
        if not self._idle:
            self._forget()
        elif self._deadline is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._forget()
        super().connection_lost(exc)

    @property
    def _idle(self) -> bool:
        """Whether no request is under way; what has become a WebSocket is not ours any more."""
        ours = self.transport.get_protocol() is self
        return ours and (self.cycle is None or self.cycle.response_complete)

    def _begin(self) -> None:
        self._deadline = self.loop.call_later(self.head_s, self._end)

    def _end(self) -> None:
        if self._idle:
            self.transport.close()

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket whose opening is answered even if it cannot be read."""

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        super().data_received(data)
        failed = self.conn.handshake_exc is not None
        if failed and not self.handshake_initiated and not self.transport.is_closing():
            self.transport.write(_UNREADABLE)
            self.transport.close()
