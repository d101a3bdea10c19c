"""The table of output formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stapes.errors import RequestError
from stapes.models.transcript import Transcript
from stapes.output import jsonl, srt, text, tsv, vtt


@dataclass(frozen=True)
class OutputFormat:
    """One way to write a transcript.

    Attributes:
        suffix: of the files that hold it.
        render: (name of the recording, transcript) -> everything that is written, as text.
        encoding: fixed by the format, or None when standard output may use the terminal's.
        is_line: whether transcripts may follow one another, each a line; a file of any other
            format holds one recording.
    """

    suffix: str
    render: Callable[[str, Transcript], str]
    encoding: str | None = None
    is_line: bool = False


FORMATS: dict[str, OutputFormat] = {
    "text": OutputFormat(".txt", text.render, is_line=True),
    "srt": OutputFormat(".srt", srt.render, encoding="utf-8"),
    "vtt": OutputFormat(".vtt", vtt.render, encoding="utf-8"),
    "tsv": OutputFormat(".tsv", tsv.render, encoding="utf-8"),
    "json": OutputFormat(".json", jsonl.render, encoding="utf-8", is_line=True),
}

ALL = "all"
_OTHER_NAMES = {"txt": "text"}


def format_names(listed: str) -> tuple[str, ...]:
    """The names in a list such as "srt,json", each once, in its order; "all" stands for all.

    Raises:
        RequestError: a name is unknown, or there is none.
    """
    names: list[str] = []
    for given in listed.split(","):
        name = given.strip().lower()
        name = _OTHER_NAMES.get(name, name)
        if name != ALL and name not in FORMATS:
            raise RequestError(
                f"format must be one or several of {', '.join([*FORMATS, ALL])}, not {given!r}."
            )
        names += FORMATS if name == ALL else [name]
    return tuple(dict.fromkeys(names))


def encode(rendered: str, encoding: str | None) -> bytes:
    r"""Bytes in `encoding` (UTF-8 when None); what it cannot express becomes a \x or \u escape.

    In UTF-8 that concerns only the stray bytes of file names, where it is JSON's own escape.
    """
    return rendered.encode(encoding or "utf-8", errors="backslashreplace")
