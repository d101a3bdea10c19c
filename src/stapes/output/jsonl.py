"""A transcript as one JSON object on one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from stapes.models.transcript import Segment, Transcript, Word

JsonObject = dict[str, object]

# str.splitlines and some readers break lines at these, which JSON allows unescaped.
_LINE_BREAKS = str.maketrans({c: f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"})


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
        "segments": [_segment(segment) for segment in transcript.segments],
    }


def _segment(segment: Segment) -> JsonObject:
    confidence = segment.confidence
    return {
        "start_s": round(segment.start_s, 3),
        "end_s": round(segment.end_s, 3),
        "text": segment.text,
        "language": segment.language,
        "confidence": None if confidence is None else round(confidence, 4),
        "finish_reason": segment.finish_reason,
        "words": word_objects(segment.words),
    }


def word_objects(words: Sequence[Word]) -> list[JsonObject]:
    """Words with their times."""
    return [
        {"text": word.text, "start_s": round(word.start_s, 3), "end_s": round(word.end_s, 3)}
        for word in words
    ]


def json_line(value: JsonObject) -> str:
    """One line of JSON; characters outside ASCII stay as they are."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return line.translate(_LINE_BREAKS) + "\n"


def render(file: str, transcript: Transcript) -> str:
    """One recording as a line of JSON."""
    return json_line(to_object(file, transcript))
