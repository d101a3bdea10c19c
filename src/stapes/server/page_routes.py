"""GET / and /static/...: the page for people, from files of the package alone.

The files are read once and kept by name, so no address can name another file. The page may load
nothing from elsewhere: its Content-Security-Policy permits this server only, and sound that the
user has opened ("blob:").
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stapes import __version__
from stapes.server.security import OPEN_FOLDER
from stapes.server.shared import shared_of
from stapes.text.languages import LANGUAGES, language_code

router = APIRouter()

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX = "index.html"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "media-src blob:",
        "connect-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # ask each time; unchanged files are not sent again
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page: its bytes, its MIME type, and a tag that changes with the bytes."""

    data: bytes
    media_type: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """All files of the page by name."""
    found: dict[str, PageFile] = {}
    for entry in files("stapes.server").joinpath("page").iterdir():
        media_type = _TYPES.get(entry.name[entry.name.rfind(".") :])
        if media_type is not None and entry.is_file():
            data = entry.read_bytes()
            etag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            found[entry.name] = PageFile(data, media_type, etag)
    return found


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """The page."""
    return _sent(request, page_files()[_INDEX])


@router.get(f"{OPEN_FOLDER}settings.json")
async def settings(request: Request) -> Response:
    """What the page must know before it may ask with a key: limits, and the languages by code."""
    shared = shared_of(request)
    body = {
        "version": __version__,
        "key_needed": bool(shared.config.api_keys),
        "max_upload_bytes": shared.config.max_upload_bytes,
        "live": shared.served.open_stream is not None,
        "languages": [{"code": language_code(name), "name": name} for name in LANGUAGES],
    }
    return JSONResponse(body, headers=_HEADERS)


@router.api_route(f"{OPEN_FOLDER}{{name}}", methods=["GET", "HEAD"])
async def static(request: Request, name: str) -> Response:
    """A file that the page loads."""
    file = page_files().get(name)
    if file is None or name == _INDEX:
        raise HTTPException(404)
    return _sent(request, file)


def _sent(request: Request, file: PageFile) -> Response:
    headers = _HEADERS | {"ETag": file.etag}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.data, headers=headers, media_type=file.media_type)
