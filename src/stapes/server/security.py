"""Who may use the server, before anything of a request is read."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from stapes.server.config import ServerConfig
from stapes.server.failures import ApiError

#: What anybody may ask: whether the server lives, and the page itself, which holds nothing.
OPEN_PATHS = ("/", "/health")
OPEN_FOLDER = "/static/"
#: Browsers cannot set headers of a WebSocket; its subprotocols can carry the key.
KEY_PROTOCOL = "stapes-key."
_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


class Guard:
    """ASGI middleware: asks for a key, or, where none is asked for, keeps other sites' pages out.

    A page of any site can send requests to this machine. Without keys those are refused that come
    from another origin, and, at a local address, those that were sent to another host name (a name
    that its owner has pointed at this machine).
    """

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app, self._config = app, config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] in ("http", "websocket"):
            error = self._refusal(Headers(scope=scope), scope["path"])
            if error is not None and scope["type"] == "http":
                await error.response()(scope, receive, send)
                return
            if error is not None:
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": error.message})
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers, path: str) -> ApiError | None:
        if self._config.api_keys:
            is_open = path in OPEN_PATHS or path.startswith(OPEN_FOLDER)
            return None if is_open else self._key_refusal(headers)
        host = _host_of(f"//{headers.get('host', '')}")
        if self._config.is_local and host not in _LOCAL_NAMES | {self._config.host}:
            return ApiError(403, f"The host {host!r:.80} is not this server.", None, "wrong_host")
        origin = headers.get("origin")
        if origin is not None and not _same(origin, headers.get("host", "")):
            return ApiError(
                403,
                "Pages of other sites may not use this server.",
                None,
                "wrong_origin",
            )
        return None

    def _key_refusal(self, headers: Headers) -> ApiError | None:
        shown = next((key for key in _shown_keys(headers) if key), None)
        if shown is None:
            message, code = "An API key is needed: Authorization: Bearer KEY.", "missing_api_key"
        elif _is_one_of(shown, self._config.api_keys):
            return None
        else:
            message, code = "The API key is not valid.", "invalid_api_key"
        return ApiError(401, message, None, code, {"WWW-Authenticate": "Bearer"})


def _shown_keys(headers: Headers) -> Iterable[str]:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    yield key.strip() if scheme.lower() == "bearer" else ""
    for protocol in headers.get("sec-websocket-protocol", "").split(","):
        name = protocol.strip()
        yield name.removeprefix(KEY_PROTOCOL) if name.startswith(KEY_PROTOCOL) else ""


def _is_one_of(shown: str, keys: Iterable[str]) -> bool:
    """Compares with all of them, in a time that does not tell how much of one was right."""
    given = shown.encode("utf-8", "replace")
    return any([hmac.compare_digest(given, key.encode()) for key in keys])  # noqa: C419 - all


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _same(origin: str, host: str) -> bool:
    return origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")
