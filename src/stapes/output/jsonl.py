"""A transcript as one JSON object on one line."""

from __future__ import annotations

import json
from dataclasses import asdict

from stapes.models.transcript import Transcript

JsonObject = dict[str, object]


def to_object(file: str, transcript: Transcript) -> JsonObject:
    """The object of one recording; names and order of its fields are part of the interface."""
    return {
        "file": file,
        "text": transcript.text,
        "language": transcript.language,
        "duration_s": transcript.duration_s,
        "model": transcript.model,
        "finish_reason": transcript.finish_reason,
        "truncated": transcript.truncated,
        "warnings": list(transcript.warnings),
        "token_ids": list(transcript.token_ids),
        "tokens": asdict(transcript.tokens),
        "timings_s": asdict(transcript.timings_s),
    }


def render(file: str, transcript: Transcript) -> str:
    """One line of JSON; characters outside ASCII stay as they are."""
    line = json.dumps(to_object(file, transcript), ensure_ascii=False, allow_nan=False)
    # str.splitlines and some readers break lines at these two, which JSON allows unescaped.
    return line.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029") + "\n"
