"""From the worker's thread to the web's: what is told of a request, and whether anybody listens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from starlette.types import Receive

from stapes.server.scheduling import Finished, Update


class ClientLeftError(Exception):
    """The client has closed its connection."""


class Channel:
    """What the worker tells of one request, for one coroutine; made in the event loop.

    Args:
        receive: of the request, whose body has been read: it tells when the client leaves. None
            for one whose client is watched elsewhere.
    """

    def __init__(self, receive: Receive | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Update | Finished] = asyncio.Queue()
        self._gone = None if receive is None else asyncio.create_task(_until_gone(receive))
        self._end: Finished | None = None

    def tell(self, what: Update | Finished) -> None:
        """Hand something over, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody listens
            self._loop.call_soon_threadsafe(self._queue.put_nowait, what)

    async def next(self) -> Update | None:
        """The next update; None at the end. Raises what ended the request, or ClientLeftError."""
        if self._end is None:
            what = await self._awaited()
            if isinstance(what, Update):
                return what
            self._end = what
        if self._end.error is not None:
            raise self._end.error
        return None

    async def result(self) -> Any:
        """What the request gave; updates that were not taken are dropped."""
        while await self.next() is not None:
            pass
        assert self._end is not None
        return self._end.value

    def close(self) -> None:
        """Nobody listens any more."""
        if self._gone is not None:
            self._gone.cancel()

    async def _awaited(self) -> Update | Finished:
        if self._gone is None:
            return await self._queue.get()
        coming = asyncio.create_task(self._queue.get())
        try:
            await asyncio.wait({coming, self._gone}, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                return coming.result()
            raise ClientLeftError
        finally:
            coming.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
