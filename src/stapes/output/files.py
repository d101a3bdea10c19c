"""Output files: their names, their folder, and writing them whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from stapes.errors import CapacityError, RequestError, StapesError

STDIN = "-"

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def storage_is_full(error: OSError) -> bool:
    """Whether a write failed for want of space, and not of the place."""
    return error.errno in _FULL


def storage_error(error: OSError, target: object) -> StapesError:
    """What the caller can do about a failed write: free space, or choose another place."""
    kind = CapacityError if storage_is_full(error) else RequestError
    return kind(f"cannot write {target}: {error.strerror or error}.")


def output_paths(files: Sequence[str], directory: Path | None, suffix: str) -> list[Path]:
    """The output path of every input file: in the folder, or beside the file without one.

    Raises:
        RequestError: a recording would be overwritten, two would be written to one file, or
            standard input has no folder to write to.
    """
    paths: dict[str, str] = {}
    found: list[Path] = []
    for file in files:
        path = _folder(file, directory) / f"{_stem(file)}{suffix}"
        place = os.path.join(os.path.realpath(path.parent), path.name)
        if place in paths:
            raise RequestError(f"{paths[place]} and {file} would both be written to {path}.")
        paths[place] = file
        found.append(path)
    _refuse_overwriting_inputs(files, found)
    return found


def prepare_directory(directory: Path) -> None:
    """Create the folder when it is missing and make sure that files can be written into it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise RequestError(f"{directory} is there already, and is no folder.") from None
    except OSError as error:
        raise storage_error(error, f"into the folder {directory}") from error
    check_directory(directory)


def check_directory(directory: Path) -> None:
    """Make sure that files can be written into a folder that is there."""
    try:
        probe = _temporary_beside(directory / "probe")
        os.close(_create(probe))
        probe.unlink()
    except OSError as error:
        raise storage_error(error, f"into the folder {directory}") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that at any moment the old content is there, or the whole new one."""
    temporary = _temporary_beside(path)
    try:
        with os.fdopen(_create(temporary), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        temporary.unlink(missing_ok=True)


def _folder(file: str, directory: Path | None) -> Path:
    if directory is not None:
        return directory
    if file == STDIN:
        raise RequestError("standard input has no folder of its own to write files to.")
    return Path(file).parent


def _stem(file: str) -> str:
    return "stdin" if file == STDIN else Path(file).stem


def _refuse_overwriting_inputs(files: Sequence[str], paths: Sequence[Path]) -> None:
    inputs = {os.path.realpath(file) for file in files if file != STDIN}
    for path in paths:
        if os.path.realpath(path) in inputs:
            raise RequestError(f"the transcript would overwrite the recording {path}.")


def _temporary_beside(path: Path) -> Path:
    return path.with_name(f".stapes-{secrets.token_hex(8)}.tmp")


def _create(path: Path) -> int:
    # Not tempfile.mkstemp: its files are private (0600), these get what the umask allows.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
