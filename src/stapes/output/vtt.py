"""A transcript as WebVTT subtitles."""

from __future__ import annotations

from stapes.models.transcript import Transcript
from stapes.output.clock import clock
from stapes.output.cues import Cue, cues_of

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def render(file: str, transcript: Transcript) -> str:
    """The header, then a block for each cue with a blank line before it."""
    del file
    return "WEBVTT\n" + "".join(map(_block, cues_of(transcript)))


def _block(cue: Cue) -> str:
    text = "\n".join(cue.lines).translate(_ESCAPES)
    return f"\n{clock(cue.start_ms, '.')} --> {clock(cue.end_ms, '.')}\n{text}\n"
