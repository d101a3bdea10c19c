"""A transcript as plain text."""

from __future__ import annotations

from stapes.models.transcript import Transcript


def render(file: str, transcript: Transcript) -> str:
    """The words as one line, also when there are none: line n belongs to recording n."""
    del file  # every renderer takes it; plain text does not show it
    return " ".join(transcript.text.splitlines()).strip() + "\n"
