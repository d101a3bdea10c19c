"""Transcripts to be written: of given segments, of words with times, and of anything at all."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

from hypothesis import strategies as st

from stapes import Timings, TokenCounts, Transcript
from stapes.models.transcript import Segment, Word


def transcript(*segments: Segment, duration_s: float = 60.0, text: str | None = None) -> Transcript:
    return Transcript(
        text=" ".join(segment.text for segment in segments) if text is None else text,
        language="English",
        duration_s=duration_s,
        model="tiny-en",
        finish_reason="stop",
        truncated=False,
        warnings=(),
        token_ids=(),
        tokens=TokenCounts(0, 0, 0),
        timings_s=Timings(0, 0, 0, 0, 0, 0, 0),
        segments=segments,
    )


def timed(text: str, start_s: float = 0.0, word_s: float = 0.3, pause_s: float = 0.0) -> Segment:
    """A segment whose words follow each other, each of the same length, pauses behind dots."""
    words, now = [], start_s
    for spelled in text.split():
        words.append(Word(spelled, now, now + word_s))
        now += word_s + (pause_s if spelled[-1] in ".?!" else 0.0)
    return Segment(start_s, words[-1].end_s, text, words=tuple(words))


def letters(text: str) -> str:
    """What must not be lost: everything but spaces and control characters."""
    return "".join(c for c in text if not c.isspace() and unicodedata.category(c) != "Cc")


ODD = (
    "a.,b?! \t\r\n\x00\x85\u2028\u2029\u00a0<>&-\"'()«»1한漢字、。「」っー한글ไทยกำة،"
    "\u0301\u200d👩🇫🇷\u200f"
)
ALPHABETS = (ODD, "ab", "abcde.,?", "漢字かな。、っ「」", "漢字 ab", "한글 .", "กำไท")


@st.composite
def texts(draw: st.DrawFn, *alphabets: str) -> str:
    """Up to 60 words of one alphabet, short and long; by default of any, or of all characters."""
    alphabet = draw(st.sampled_from([*alphabets] or [*ALPHABETS, None]))
    characters = st.characters() if alphabet is None else st.sampled_from(alphabet)
    longest = draw(st.sampled_from([3, 8, 20, 100]))
    count = draw(st.integers(0, 60))
    lengths = draw(st.lists(st.integers(1, longest), min_size=count, max_size=count))
    # One draw for all: hypothesis keeps lists of lists short.
    random = draw(st.randoms(use_true_random=False))
    pool = draw(st.lists(characters, min_size=12, max_size=12))
    return " ".join("".join(random.choices(pool, k=length)) for length in lengths)


@st.composite
def segments(draw: st.DrawFn, start_s: float, end_s: float) -> Segment:
    """A segment with words that spell it, whose times are anything, or without words."""
    text = draw(texts())
    spelled = text.split() if draw(st.booleans()) else []
    random = draw(st.randoms(use_true_random=False))
    times = [random.uniform(start_s - 1, end_s + 1) for _ in range(2 * len(spelled))]
    if draw(st.booleans()):
        times.sort()
    words = zip(spelled, times[::2], times[1::2], strict=True)
    return Segment(start_s, end_s, text, words=tuple(Word(*word) for word in words))


@st.composite
def transcripts(draw: st.DrawFn) -> Transcript:
    """Any transcript whose segments are in order, at least as long as its cues in milliseconds."""
    duration_s = draw(st.floats(1.0, 200.0))
    times = sorted(draw(st.lists(st.floats(0.0, duration_s), min_size=2, max_size=6)))
    parts = [draw(segments(start, end)) for start, end in pairwise(times)]
    return transcript(*parts, duration_s=duration_s)
