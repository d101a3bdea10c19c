"""Uploads: multipart forms whose files go to disk as they come, within a limit."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, BinaryIO, cast

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from stapes.audio.source import shown_name
from stapes.server.channel import ClientLeftError
from stapes.server.config import MEGABYTE
from stapes.server.failures import ApiError
from stapes.server.scheduling import BusyError
from stapes.server.scheduling.worker import RETRY_FULL_S

_LEAST_BYTES_PER_S = 100  # speech that is sent as it is spoken has five times as much
_MOST_FIELDS = 64
_MOST_FIELD_BYTES = 256 * 1024  # of one field that is no file: a context, a text to align


class UploadedFile:
    """An uploaded recording. Its file has no name on disk and ends with the process at the latest.

    Attributes:
        name: the client's name for it, for messages and for telling a format; never a path.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self.name = shown_name(name) if name else "The uploaded file"

    def read(self, size: int = -1) -> bytes:
        """Bytes."""
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """The new position."""
        self._file.seek(offset, whence)
        return self._file.tell()

    def tell(self) -> int:
        """The position."""
        return self._file.tell()

    def seekable(self) -> bool:
        """Always."""
        return True

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._file.closed

    def close(self) -> None:
        """Remove it."""
        self._file.close()

    def __enter__(self) -> BinaryIO:
        return cast("BinaryIO", self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class UploadGate:
    """Bounds how many uploads come at once, and with that the disk that they take.

    Args:
        most: uploads at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0

    @contextmanager
    def passed(self) -> Iterator[None]:
        """For as long as an upload comes, in the event loop. BusyError when there are too many."""
        if self._open >= self._most:
            raise BusyError(f"The server is full: {self._open} uploads are coming.", RETRY_FULL_S)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


@dataclass
class Form:
    """The fields of a form, and its file; whoever takes the file closes it.

    Attributes:
        fields: name -> value, or values of a name that ends in [].
        file: the field "file", or None.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    file: UploadedFile | None = None

    def take_file(self) -> BinaryIO:
        """The file, which is the caller's now. ApiError when there is none."""
        if self.file is None:
            raise ApiError(400, "The field 'file' is missing.", "file", "missing_field")
        taken, self.file = self.file, None
        return cast("BinaryIO", taken)

    def close(self) -> None:
        """Remove the file if nobody has taken it."""
        if self.file is not None:
            self.file.close()


class _Parser(MultiPartParser):
    """A parser that does not take a form that was cut off for a whole one."""

    def __init__(
        self, headers: Headers, stream: AsyncGenerator[bytes, None], **limits: int
    ) -> None:
        super().__init__(headers, self._to_the_end(stream), **limits)
        self._ended = False

    def on_end(self) -> None:
        """The form's last line has been read."""
        self._ended = True

    async def _to_the_end(self, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """The same; an error raised from here lets the parser close what it has opened."""
        async for part in stream:
            yield part
        if not self._ended:
            raise MultiPartException("it ends too early.")


async def read_form(request: Request, most_bytes: int, idle_s: float) -> Form:
    """Read a form.

    Up to a megabyte of its file is held in memory, beyond that it is on disk, in a file without a
    name.

    Raises:
        ApiError: it is no form, too large, too slow, malformed, or has fields twice.
        ClientLeftError: the client closed its connection midway.
    """
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        raise ApiError(400, "The request must be multipart/form-data.", None, "invalid_form")
    _check_charset(kind)
    check_length(request, most_bytes)
    parser = _Parser(
        request.headers,
        limited(request, most_bytes, idle_s),
        max_files=1,
        max_fields=_MOST_FIELDS,
        max_part_size=_MOST_FIELD_BYTES,
    )
    try:
        items = (await parser.parse()).multi_items()
    except MultiPartException as error:
        raise ApiError(
            400, f"The form is malformed: {error.message}", None, "invalid_form"
        ) from None
    return _sorted(items)


def _check_charset(kind: str) -> None:
    """ApiError unless names and values are UTF-8: other codecs of Python may fail, or take long."""
    _, options = parse_options_header(kind)
    charset = options.get(b"charset", b"utf-8").decode("latin-1")
    if charset.lower() not in ("utf-8", "utf8", "us-ascii"):
        raise ApiError(400, f"The form must be UTF-8, not {charset!r:.80}.", None, "invalid_form")


def check_length(request: Request, most_bytes: int) -> None:
    """ApiError 413 when a request says that it is too large."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdecimal() and int(length) > most_bytes:
        raise too_large(most_bytes)


def too_large(most_bytes: int) -> ApiError:
    """The error of a request that is too large."""
    limit = f"{most_bytes / MEGABYTE:g} MB" if most_bytes >= MEGABYTE else f"{most_bytes} bytes"
    close = {"Connection": "close"}  # what is still under way is not read
    return ApiError(413, f"The request has more than {limit}.", None, "too_large", close)


async def limited(request: Request, most_bytes: int, idle_s: float) -> AsyncGenerator[bytes, None]:
    """The body as it comes; ApiError when it is too large, too slow, or pauses for too long."""
    received, began = 0, time.monotonic()
    stream = request.stream()
    while True:
        spare_s = idle_s + received / _LEAST_BYTES_PER_S - (time.monotonic() - began)
        try:
            part = await asyncio.wait_for(_next(stream), min(idle_s, max(0.0, spare_s)))
        except TimeoutError:
            raise _too_slow(idle_s, spare_s) from None
        except ClientDisconnect:
            raise ClientLeftError from None
        if part is None:
            return
        received += len(part)
        if received > most_bytes:
            raise too_large(most_bytes)
        yield part


def _too_slow(idle_s: float, spare_s: float) -> ApiError:
    reason = f"Nothing came for {idle_s:g} s."
    if spare_s < idle_s:
        reason = f"The request comes with less than {_LEAST_BYTES_PER_S} bytes a second."
    return ApiError(408, reason, None, "too_slow", {"Connection": "close"})


async def _next(stream: AsyncIterator[bytes]) -> bytes | None:
    return await anext(stream, None)


async def read_body(request: Request, most_bytes: int, idle_s: float) -> bytes:
    """A body that is held in memory; ApiError, ClientLeftError: see `read_form`."""
    check_length(request, most_bytes)
    return b"".join([part async for part in limited(request, most_bytes, idle_s)])


def _sorted(items: list[tuple[str, UploadFile | str]]) -> Form:
    form = Form()
    try:
        _check_once([name for name, _ in items])
        for name, value in items:
            if isinstance(value, UploadFile):
                uploaded = UploadedFile(value.file, value.filename or "")
                form.file = uploaded
                if name != "file":
                    raise ApiError(
                        400, f"The field {name!r} cannot be a file.", name, "invalid_value"
                    )
            elif name == "file":
                raise ApiError(400, "The field 'file' holds no file.", "file", "invalid_value")
            elif name.endswith("[]"):
                form.fields.setdefault(name.removesuffix("[]"), []).append(value)
            else:
                form.fields[name] = value
    except ApiError:
        form.close()
        for _, value in items:
            if isinstance(value, UploadFile):
                value.file.close()
        raise
    return form


def _check_once(names: list[str]) -> None:
    """ApiError when a name comes twice, or as a list and as a value."""
    for name, count in Counter(names).items():
        if f"{name}[]" in names:
            reason = f"The field {name!r:.100} is there as {f'{name}[]'!r:.100}, too."
        elif count > 1 and not name.endswith("[]"):
            reason = f"The field {name!r:.100} is there {count} times."
        else:
            continue
        raise ApiError(400, reason, name, "invalid_form")
