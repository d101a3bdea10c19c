"""Server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stapes.server.channel import ClientLeftError
from stapes.server.failures import INTERNAL, translated

DONE = b"data: [DONE]\n\n"


def event(value: Any) -> bytes:
    """One event that holds a JSON value."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


class EventStream(Response):
    """A response of events as they come. An error on the way is the last event.

    Args:
        events: the events' bytes.
        close: is called at the end, however it comes.
        failed: is called with an error that no client caused.
        left: is called when the client has left before the end.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        close: Callable[[], None],
        failed: Callable[[BaseException], None],
        left: Callable[[], None],
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events, self._close = events, close
        self._failed, self._left = failed, left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            await send(start)
            async for part in self._reported():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (ClientLeftError, OSError):
            self._left()
        finally:
            self._close()

    async def _reported(self) -> AsyncIterator[bytes]:
        """The events, and an error as one of them."""
        try:
            async for part in self._events:
                yield part
        except (ClientLeftError, OSError):
            raise
        except Exception as error:
            told = translated(error)
            if told is None:
                self._failed(error)
            yield event((told or INTERNAL).body())
