"""The file of results: whole lines, each on the disk before the next; and what it says is done.

It is the only memory of a job. A job that was ended in whatever way is gone on with by reading it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stapes.batch.task import UNEXPECTED, Outcome
from stapes.errors import RequestError
from stapes.output.files import storage_error
from stapes.output.formats import encode

# Every line of ours begins so; a piece of another file is never taken for a torn line of ours.
_START = b'{"id": "'

# str.splitlines and some readers break lines at these, which JSON allows unescaped.
_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")


class Results:
    """The results of a job, open for more. Held by one job at a time: see `open_results`.

    Attributes:
        done: ids that have a line with a transcript.
        failed: id -> kind, of those that have a line with an error.
        torn: bytes of an unfinished last line, which was removed.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.done: set[str] = set()
        self.failed: dict[str, str] = {}
        self._descriptor = descriptor
        self._end = self._read()
        self.torn = os.fstat(descriptor).st_size - self._end
        with _writing(path):
            os.ftruncate(descriptor, self._end)

    def has(self, name: str) -> bool:
        """Whether an entry has a line, of whatever kind."""
        return name in self.done or name in self.failed

    def write(self, outcome: Outcome) -> None:
        """Append one line; when this returns it is on the disk, whole.

        Raises:
            CapacityError, RequestError: it cannot be written; no part of it stays.
        """
        line = _line(outcome)
        try:
            with _writing(self.path):
                _write_all(self._descriptor, line, self._end)
                os.fsync(self._descriptor)
        except BaseException:
            with contextlib.suppress(OSError):  # else the next start removes it
                os.ftruncate(self._descriptor, self._end)
            raise
        self._end += len(line)
        self._enter(outcome.task.id, outcome.kind)

    def forget(self, failed: Collection[str]) -> None:
        """Remove the lines of failed entries that are to be tried again.

        The file is replaced by one without them, so that each entry has one line at any moment.
        """
        gone = set(failed) & self.failed.keys()
        if not gone:
            return
        kept = (line for line in self._lines() if json.loads(line)["id"] not in gone)
        with _writing(self.path):
            replacement = _replace(self.path, kept)
        os.close(self._descriptor)
        self._descriptor = replacement
        self._end = os.fstat(replacement).st_size
        for name in gone:
            del self.failed[name]

    def close(self) -> None:
        """Let another job have the file."""
        os.close(self._descriptor)

    def _enter(self, name: str, kind: str | None) -> None:
        if kind is None:
            self.done.add(name)
            self.failed.pop(name, None)
        elif name not in self.done:
            self.failed[name] = kind

    def _lines(self) -> Iterator[bytes]:
        # A duplicate, to be closed, of the descriptor, which holds the lock.
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            yield from file

    def _read(self) -> int:
        """Enter what is done; the length without an unfinished last line, in bytes."""
        end = 0
        size = os.fstat(self._descriptor).st_size
        for number, line in enumerate(self._lines(), start=1):
            found = _parsed(line)
            if found is not None:
                self._enter(*found)
                end += len(line)
            elif end + len(line) < size or not _is_torn(line):
                raise RequestError(
                    f"line {number} of {self.path} is no result of a job: name another file."
                )
        return end


@contextmanager
def open_results(path: Path) -> Iterator[Results]:
    """The results in a file, which is created when it is missing, for this job alone.

    Raises:
        RequestError: another job has the file, it cannot be written, or holds something else.
    """
    path = Path(os.path.realpath(path))  # a link stays one when the file is replaced
    results = Results(path, _locked(path))
    try:
        yield results
    finally:
        results.close()


def _line(outcome: Outcome) -> bytes:
    fields = {"id": outcome.task.id, "audio": outcome.task.audio, **outcome.fields}
    text = json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n"
    return encode(_LINE_BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", text), "utf-8")


def _parsed(line: bytes) -> tuple[str, str | None] | None:
    """The id of a line and the kind of its error, None when the line is not whole or not ours."""
    try:
        fields = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("id"), str):
        return None
    if "text" not in fields and "error" not in fields:
        return None
    return fields["id"], str(fields.get("kind", UNEXPECTED)) if "error" in fields else None


def _is_torn(line: bytes) -> bool:
    """Whether the last line is the beginning of one of ours; after a power cut, of zeros, too."""
    start = line[: len(_START)]
    return _START.startswith(start) or not line.strip(b"\0")


def _locked(path: Path) -> int:
    while True:
        with _writing(path):
            descriptor = _opened(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise RequestError(f"another job is writing {path}.") from None
        except OSError as error:
            os.close(descriptor)
            raise RequestError(f"{path} cannot be locked: {error.strerror or error}.") from error
        os.close(descriptor)  # the file was replaced between opening and locking


def _opened(path: Path) -> int:
    if path.exists() and not path.is_file():
        raise RequestError(f"{path} is no ordinary file, which alone can be gone on with.")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    _sync_folder(path)
    return descriptor


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _replace(path: Path, lines: Iterable[bytes]) -> int:
    """Put a file of these lines in the place of `path`, locked before it is seen there."""
    temporary = path.with_name(f".stapes-{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.writelines(lines)
        os.fsync(descriptor)
        os.replace(temporary, path)
        _sync_folder(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        os.close(descriptor)
        raise
    return descriptor


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _sync_folder(path: Path) -> None:
    """Make a file's name last as its content does."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error
