"""The text of a segment, and when each of its characters is spoken."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from stapes.models.transcript import Segment, Transcript, Word

# All white space but that which forbids a break: "5 %" and the French "quoi ?" stay together.
_SPACES = re.compile(r"[^\S\u00a0\u2007\u202f]+")


@dataclass(frozen=True)
class SpokenText:
    """One line of text with a clock.

    Attributes:
        text: without line breaks and control characters, one space where there was any.
        starts_s, ends_s: seconds of the recording, for each character; they never decrease.
        word_starts: offsets at which a word with a time of its own begins.
    """

    text: str
    starts_s: tuple[float, ...]
    ends_s: tuple[float, ...]
    word_starts: frozenset[int]


@dataclass(frozen=True)
class _Span:
    """Characters first..last-1 are spoken evenly from start_s to end_s."""

    first: int
    last: int
    start_s: float
    end_s: float


def segments_of(transcript: Transcript) -> tuple[Segment, ...]:
    """The segments; one of the whole recording where a model gave a text without any."""
    if transcript.segments or not one_line(transcript.text):
        return transcript.segments
    whole = Segment(0.0, transcript.duration_s, transcript.text, transcript.language)
    return (whole,)


def one_line(text: str) -> str:
    """The text on one line, white space as single spaces; control characters count as such."""
    if not text.isprintable():
        text = "".join(" " if unicodedata.category(c) == "Cc" else c for c in text)
    return _SPACES.sub(" ", text).strip()


def spoken_text(segment: Segment) -> SpokenText:
    """The segment's text with the times of its words; without words its time is shared out.

    Words count only when they spell the text, apart from punctuation and spaces. Otherwise every
    character gets an equal share of the segment, which is an estimate.
    """
    text = one_line(segment.text)
    spans = _word_spans(text, segment.words)
    word_starts = frozenset(span.first for span in spans)
    if not spans:
        spans = [_Span(0, len(text), segment.start_s, segment.end_s)]
    starts, ends = _clock(text, spans)
    low, high = segment.start_s, segment.end_s
    times = _ascending([t for pair in zip(starts, ends, strict=True) for t in pair], low, high)
    return SpokenText(text, tuple(times[::2]), tuple(times[1::2]), word_starts)


def _word_spans(text: str, words: Sequence[Word]) -> list[_Span]:
    """Where the words stand in the text; none at all when they leave out letters or digits."""
    spans: list[_Span] = []
    position = 0
    for word in words:
        spelled = one_line(word.text)
        at = text.find(spelled, position)
        if at < 0 or _has_letters(text[position:at]):
            return []
        position = at + len(spelled)
        if spelled:
            spans.append(_Span(at, position, word.start_s, word.end_s))
    return [] if _has_letters(text[position:]) else spans


def _has_letters(text: str) -> bool:
    return any(map(str.isalnum, text))


def _clock(text: str, spans: Sequence[_Span]) -> tuple[list[float], list[float]]:
    """Start and end of each character. What is between two words takes no time.

    It follows the word before it, up to a space; behind the space it goes with the next word.
    """
    starts, ends = [0.0] * len(text), [0.0] * len(text)
    done, before_s = 0, spans[0].start_s
    for span in spans:
        space = text.find(" ", done, span.first)
        border = span.first if space < 0 else space
        starts[done:border] = ends[done:border] = [before_s] * (border - done)
        starts[border : span.first] = ends[border : span.first] = [span.start_s] * (
            span.first - border
        )
        count, length_s = span.last - span.first, span.end_s - span.start_s
        for k in range(count):
            starts[span.first + k] = span.start_s + length_s * k / count
            ends[span.first + k] = span.start_s + length_s * (k + 1) / count
        done, before_s = span.last, span.end_s
    starts[done:] = ends[done:] = [before_s] * (len(text) - done)
    return starts, ends


def _ascending(times: Sequence[float], low: float, high: float) -> list[float]:
    """The times within low..high, none before its predecessor."""
    found: list[float] = []
    for time in times:
        low = max(low, min(time, high))
        found.append(low)
    return found
