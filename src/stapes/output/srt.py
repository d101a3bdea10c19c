"""A transcript as SubRip subtitles."""

from __future__ import annotations

import re

from stapes.models.transcript import Transcript
from stapes.output.clock import clock
from stapes.output.cues import Cue, cues_of

# The format knows no escapes, and this is the one thing that readers take for a line of times.
_ARROW = re.compile("-{2,}>")


def render(file: str, transcript: Transcript) -> str:
    """Numbered blocks with a blank line behind each; nothing when nothing was said."""
    del file
    return "".join(_block(number, cue) for number, cue in enumerate(cues_of(transcript), 1))


def _block(number: int, cue: Cue) -> str:
    text = "\n".join(_ARROW.sub("->", line) for line in cue.lines)
    return f"{number}\n{clock(cue.start_ms, ',')} --> {clock(cue.end_ms, ',')}\n{text}\n\n"
