"""Writing large files whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from stapes.errors import CapacityError, RequestError, StapesError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replacing(path: Path, size: int) -> Iterator[BinaryIO]:
    """A file of `size` bytes to be written, which takes the place of `path` at the end.

    Until then it lies beside it under another name; whatever ends the block early removes it.

    Raises:
        CapacityError: the disk has no room for it. RequestError: it cannot be written there.
    """
    temporary = path.with_name(f".stapes-{secrets.token_hex(8)}.tmp")
    try:
        _check_room(path, size)
        with os.fdopen(_create(temporary), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise _storage_error(error, path, size) from error
    finally:
        temporary.unlink(missing_ok=True)


def _check_room(path: Path, size: int) -> None:
    if size > (free := shutil.disk_usage(path.parent).free):
        raise CapacityError(f"{path} takes {size} bytes, but the disk has {free} left.")


def _create(path: Path) -> int:
    # Not tempfile.mkstemp: its files are private (0600), these get what the umask allows.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _storage_error(error: OSError, path: Path, size: int) -> StapesError:
    if error.errno not in _FULL:
        return RequestError(f"{path} cannot be written: {error.strerror or error}.")
    free = shutil.disk_usage(path.parent).free
    return CapacityError(f"{path} takes {size} bytes, but the disk is full ({free} bytes left).")
