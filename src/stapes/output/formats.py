"""The table of output formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stapes.models.transcript import Transcript
from stapes.output import jsonl, text


@dataclass(frozen=True)
class OutputFormat:
    """One way to write a transcript.

    Attributes:
        suffix: of the files that hold it.
        render: (name of the recording, transcript) -> everything that is written, as text.
        encoding: fixed by the format, or None when standard output may use the terminal's.
    """

    suffix: str
    render: Callable[[str, Transcript], str]
    encoding: str | None = None


FORMATS: dict[str, OutputFormat] = {
    "text": OutputFormat(".txt", text.render),
    "json": OutputFormat(".json", jsonl.render, encoding="utf-8"),
}


def encode(rendered: str, encoding: str | None) -> bytes:
    r"""Bytes in `encoding` (UTF-8 when None); what it cannot express becomes a \x or \u escape.

    In UTF-8 that concerns only the stray bytes of file names, where it is JSON's own escape.
    """
    return rendered.encode(encoding or "utf-8", errors="backslashreplace")
