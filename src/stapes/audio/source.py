"""From what a caller passes (path, bytes, stream) to a seekable file with a name to show."""

from __future__ import annotations

import errno
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from stapes.errors import AudioError, CapacityError, RequestError

AudioSource = str | os.PathLike[str] | bytes | BinaryIO

SPOOL_BYTES = 64 * 2**20
"""Streams that cannot seek are kept in memory up to here, beyond it in a temporary file."""


@dataclass(frozen=True)
class Source:
    """An open recording: bytes [start, stop) of a seekable file, and what to call it."""

    name: str
    file: BinaryIO
    start: int
    stop: int


@contextmanager
def open_source(source: AudioSource) -> Iterator[Source]:
    """Open a path, bytes or binary stream; a caller's stream is read from where it stands.

    Raises:
        AudioError: missing, a folder, unreadable or empty.
        RequestError: not a path, bytes or binary stream.
        CapacityError: a stream that cannot seek does not fit onto the disk.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        yield _measured("<bytes>", io.BytesIO(source), 0)
    elif isinstance(source, (str, os.PathLike)):
        with _open_path(source) as file, _seekable(shown_name(source), file) as found:
            yield found
    elif hasattr(source, "read"):
        with _seekable(_stream_name(source), source) as found:
            yield found
    else:
        kind = type(source).__name__
        raise RequestError(f"A recording must be a path, bytes or a binary stream, not {kind}.")


def shown_name(path: str | os.PathLike[str]) -> str:
    """The file's own name, safe to print: no folders, no control or undecodable characters."""
    text = os.fsdecode(path)
    name = Path(text).name or text or "''"
    name = name.encode("utf-8", "replace").decode("utf-8")
    return "".join(char if char.isprintable() else "?" for char in name)


def _stream_name(stream: object) -> str:
    name = getattr(stream, "name", None)
    if name == 0 or name == "<stdin>":
        return "<stdin>"
    return shown_name(name) if isinstance(name, str) and name else "<stream>"


def _open_path(path: str | os.PathLike[str]) -> BinaryIO:
    name = shown_name(path)
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise AudioError(f"{name} does not exist.") from None
    except IsADirectoryError:
        raise AudioError(f"{name} is a folder, not a recording.") from None
    except PermissionError:
        raise AudioError(f"{name} cannot be read: permission denied.") from None
    except (OSError, ValueError) as error:
        raise AudioError(f"{name} cannot be opened: {_reason(error)}.") from error


@contextmanager
def _seekable(name: str, stream: BinaryIO) -> Iterator[Source]:
    """The stream itself, or a copy when it cannot seek (MP4 keeps its index at the end)."""
    if isinstance(stream, io.TextIOBase):
        raise RequestError(f"{name} is a text stream; a recording must be opened in binary mode.")
    if _can_seek(stream):
        yield _measured(name, stream, stream.tell())
        return
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as spool:
        file = cast(BinaryIO, spool)
        try:
            shutil.copyfileobj(stream, file, 2**20)
        except (OSError, TypeError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise CapacityError(
                    f"{name} cannot seek, and {tempfile.gettempdir()} has no room for a copy of it."
                ) from error
            raise AudioError(f"{name} cannot be read: {_reason(error)}.") from error
        yield _measured(name, file, 0)


def _can_seek(stream: BinaryIO) -> bool:
    try:
        return stream.seekable()
    except (AttributeError, ValueError):
        return False


def _measured(name: str, file: BinaryIO, start: int) -> Source:
    try:
        stop = file.seek(0, io.SEEK_END)
    except OSError as error:
        raise AudioError(f"{name} cannot be read: {_reason(error)}.") from error
    if stop <= start:
        raise AudioError(f"{name} holds no audio: it is empty (0 bytes).")
    return Source(name, file, start, stop)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
