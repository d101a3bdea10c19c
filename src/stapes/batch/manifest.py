"""The manifest: one JSON object on each line, checked whole before any work."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stapes.batch.task import Task
from stapes.errors import RequestError
from stapes.options import TranscribeOptions
from stapes.text.languages import canonical_language

# Fields of an entry that are options of its transcription, and what JSON must have there.
_OPTIONS: dict[str, tuple[tuple[type, ...], str]] = {
    "language": ((str,), "text"),
    "context": ((str,), "text"),
    "max_new_tokens": ((int,), "a whole number"),
    "loop_detection": ((bool,), "true or false"),
    "batch": ((int,), "a whole number"),
    "chunk_seconds": ((int, float), "a number"),
    "vad": ((bool,), "true or false"),
}
_MOST_SHOWN = 5


def read_manifest(path: Path, defaults: TranscribeOptions) -> list[Task]:
    """The entries of a manifest in their order; empty lines do not count.

    An entry has `audio`, a path that is relative to the manifest's folder; `id`, which is `audio`
    unless it is given, and is there once; and options of its own in place of the defaults, where
    they are not null.

    Raises:
        RequestError: it cannot be read, or lines are wrong; the sentence has their numbers.
    """
    tasks: list[Task] = []
    wrong: list[str] = []
    folder = os.path.abspath(path.parent)  # a worker may have another working directory
    lines: dict[str, int] = {}  # id -> the line that has it
    for number, line in _lines(path):
        try:
            task = _task(line, folder, defaults)
            if task.id in lines:
                raise RequestError(f"the id {task.id!r} is that of line {lines[task.id]}, too.")
        except RequestError as error:
            wrong.append(f"line {number}: {str(error).rstrip('.')}")
        else:
            lines[task.id] = number
            tasks.append(task)
    if wrong:
        more = f"; and {len(wrong) - _MOST_SHOWN} more" if len(wrong) > _MOST_SHOWN else ""
        shown = "; ".join(wrong[:_MOST_SHOWN])
        raise RequestError(f"{path}, of which nothing was done: {shown}{more}.")
    if not tasks:
        raise RequestError(f"{path} has no entries.")
    return tasks


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                # Some editors begin a file with a byte order mark.
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if text.strip():
                    yield number, text
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror or error}.") from error


def _task(line: bytes, folder: str, defaults: TranscribeOptions) -> Task:
    fields = _object(line)
    audio = _text(fields, "audio")
    if audio is None:
        raise RequestError('"audio" is missing')
    name = _text(fields, "id") or audio
    unknown = sorted(fields.keys() - {"audio", "id", *_OPTIONS})
    if unknown:
        known = ", ".join(["audio", "id", *_OPTIONS])
        raise RequestError(f"{unknown[0]!r} is no field of an entry, which are {known}")
    given = {key: value for key, value in fields.items() if key in _OPTIONS and value is not None}
    return Task(name, audio, os.path.join(folder, audio), _options(given, defaults))


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise RequestError(f"this is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise RequestError(f"this is not a JSON object but {type(found).__name__}")
    return found


def _text(fields: dict[str, Any], key: str) -> str | None:
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value or "\0" in value:
        raise RequestError(f"{key!r} must be text of at least one character, not {value!r}")
    return value


def _options(given: dict[str, Any], defaults: TranscribeOptions) -> TranscribeOptions:
    for key, value in given.items():
        kinds, wanted = _OPTIONS[key]
        # True is a whole number to Python, and not to anybody else.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise RequestError(f"{key!r} must be {wanted}, not {value!r}")
    if "language" in given:
        given["language"] = canonical_language(given["language"])
    return TranscribeOptions(**{**asdict(defaults), **given})
