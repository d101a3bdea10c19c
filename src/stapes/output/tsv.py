"""A transcript as a table: start, end, text, with tabs between."""

from __future__ import annotations

from stapes.models.transcript import Segment, Transcript
from stapes.output.spoken import one_line, segments_of


def render(file: str, transcript: Transcript) -> str:
    """A line of names, then a row for each segment; times are whole milliseconds."""
    del file
    return "start\tend\ttext\n" + "".join(map(_row, segments_of(transcript)))


def _row(segment: Segment) -> str:
    start_ms, end_ms = round(segment.start_s * 1000), round(segment.end_s * 1000)
    return f"{start_ms}\t{end_ms}\t{one_line(segment.text)}\n"
