"""What `stapes listen` prints: finals, events as JSON, or a line that is rewritten in place."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Protocol

from stapes.cli import messages, stdout
from stapes.output.jsonl import JsonObject, json_line, word_objects

if TYPE_CHECKING:
    from stapes.streaming import StreamEvent

_CLEAR = "\r\x1b[K"  # back to the first column, and nothing behind the cursor


class Output(Protocol):
    """Shows events as they come."""

    def show(self, event: StreamEvent) -> None:
        """Show one; notices go to standard error, whatever the output."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


def to_object(event: StreamEvent) -> JsonObject:
    """The JSON object of an event; names and order of its fields are part of the interface."""
    common: JsonObject = {
        "type": event.type,
        "text": event.text,
        "start_s": round(event.start_s, 3),
        "end_s": round(event.end_s, 3),
        "language": event.language,
        "lag_s": round(event.lag_s, 3),
        "utterance": event.utterance,
    }
    if event.type != "final":
        return {**common, "step_s": event.step_s}
    words = word_objects(event.words)
    return {**common, "finish_reason": event.finish_reason, "words": words}


class JsonOutput:
    """One event a line; notices are warnings on standard error."""

    def __init__(self, source: str) -> None:
        self._source = source

    def show(self, event: StreamEvent) -> None:
        """See `Output`."""
        if event.type == "notice":
            messages.warning(self._source, event.text)
            return
        stdout.write(json_line(to_object(event)), "utf-8")

    def close(self) -> None:
        """See `Output`."""


class PlainOutput:
    """The text of each utterance on a line, once it is final."""

    def __init__(self, source: str) -> None:
        self._source = source

    def show(self, event: StreamEvent) -> None:
        """See `Output`."""
        if event.type == "notice":
            messages.warning(self._source, event.text)
        elif event.type == "final":
            stdout.write(printable(event.text) + "\n")

    def close(self) -> None:
        """See `Output`."""


class TerminalOutput:
    """Finals, each on a line, and below them what is heard now, rewritten in place."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._committed = ""
        self._shown = False

    def show(self, event: StreamEvent) -> None:
        """See `Output`."""
        if event.type == "notice":
            self._clear()
            messages.warning(self._source, event.text)
        elif event.type == "final":
            self._committed, self._shown = "", False
            stdout.write(f"{_CLEAR}{printable(event.text)}\n")
        elif event.type == "committed":
            self._committed += event.text
            self._rewrite(self._committed)
        else:
            self._rewrite(self._committed + event.text)

    def close(self) -> None:
        """See `Output`."""
        self._clear()

    def _rewrite(self, text: str) -> None:
        """As much of the end of a text as fits on one line: a longer one could not be rewritten."""
        from rich.cells import cell_len

        width = shutil.get_terminal_size().columns - 1
        line = printable(text)
        while cell_len(line) > width:
            line = line[max(1, (cell_len(line) - width) // 2) :]
        self._shown = True
        stdout.write(_CLEAR + line)

    def _clear(self) -> None:
        if self._shown:
            stdout.write(_CLEAR)
            self._shown = False


def printable(text: str) -> str:
    """Without control characters, which a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in text)
