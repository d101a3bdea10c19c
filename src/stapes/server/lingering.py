"""What is answered before the whole request has come reaches the client all the same."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LINGER_S = 5.0


class Lingering:
    """ASGI middleware: lets a client that is still sending end, before its connection is closed.

    Where a connection is closed while bytes of the client are unread, TCP resets it, and most
    clients then tell of a reset and not of the answer. So the rest is read and dropped, for
    `most_s` seconds at the most; the answer itself has been sent by then.
    """

    def __init__(self, app: ASGIApp, most_s: float = LINGER_S) -> None:
        self._app, self._most_s = app, most_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http" or not _sends_a_body(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        has_ended = False

        async def receiving() -> Message:
            nonlocal has_ended
            message = await receive()
            has_ended = has_ended or not message.get("more_body", False)
            return message

        async def sending(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get("more_body")
            if not is_last or has_ended or _is_cancelled():
                await send(message)
                return
            await send({**message, "more_body": True})
            with suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(self._most_s):
                    while not has_ended:
                        await receiving()
            await send({"type": "http.response.body", "body": b""})

        await self._app(scope, receiving, sending)


def _is_cancelled() -> bool:
    """Whether the server ends, and waits for nobody."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _sends_a_body(headers: Headers) -> bool:
    """Whether a body comes without being asked for, as `Expect` lets a client wait."""
    has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return has_body and "expect" not in headers
