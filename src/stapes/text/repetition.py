"""Collapses what a model repeats without end."""

from __future__ import annotations

import re

# The limits of the reference implementation's post-filter (the qwen-asr package): a character more
# than 20 times in a row, or a pattern of up to 20 characters at least 20 times, become one.
CHARACTER_LIMIT = 20
PATTERN_LENGTH = 20
PATTERN_COUNT = 20

_CHARACTERS = re.compile(rf"(.)\1{{{CHARACTER_LIMIT},}}", re.DOTALL)
# The shortest pattern at the leftmost place. Per position the work is bounded by the limits, so
# the time is linear in the text.
_PATTERNS = re.compile(rf"(.{{2,{PATTERN_LENGTH}}}?)\1{{{PATTERN_COUNT - 1},}}", re.DOTALL)


def collapse_repetitions(text: str) -> tuple[str, bool]:
    """The text with endless repeats reduced to one, and whether there were any.

    Repeats that people really say ("no" a dozen times) are below the limits and stay. A pattern's
    last, incomplete repeat stays too. Characters are counted first, patterns in what is left.
    """
    shorter = _CHARACTERS.sub(r"\1", text)
    shorter = _PATTERNS.sub(r"\1", shorter)
    return shorter, shorter != text
