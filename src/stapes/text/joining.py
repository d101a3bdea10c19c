"""Joins the transcripts of consecutive pieces of a recording.

What belongs between two pieces depends on the script: a space in Latin, Cyrillic, Greek, Arabic,
Hangul, Devanagari and most others, nothing in Chinese, Japanese, Thai and a few others that are
written without spaces between words.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence

# Blocks of scripts written without spaces between words (Unicode's Blocks.txt): first and last
# code point, ascending.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # radicals
    (0x3005, 0x3007),  # iteration mark, closing mark, ideographic zero
    (0x3021, 0x3029),  # Hangzhou numerals
    (0x3031, 0x3035),  # kana repeat marks
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31BF),  # Bopomofo extended
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA9E0, 0xA9FF),  # Myanmar extended B
    (0xAA60, 0xAA7F),  # Myanmar extended A
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # half-width Katakana
    (0x1AFF0, 0x1B16F),  # kana supplements
    (0x20000, 0x3FFFF),  # further Han
)
_STARTS = [first for first, _ in _UNSPACED]
_ATTACHED_MARKS = frozenset(".,!?;:%…")  # written on to the word before them
_OPENING = frozenset(("Ps", "Pi"))  # Unicode categories of opening brackets and quotes
_ATTACHED_CATEGORIES = frozenset(("Mn", "Mc", "Me", "Cf"))  # marks of the character before
_CLOSING = frozenset(("Pe", "Pf"))


def join_pieces(pieces: Sequence[str]) -> str:
    """One text of the pieces' texts in order; outer white space and empty pieces are dropped.

    Between two pieces there is a space or nothing, never two spaces. Nothing comes before
    closing and behind opening punctuation, beside full-width punctuation, and where both sides
    are written without spaces; digits and punctuation go with the letters next to them.
    """
    joined = ""
    for piece in pieces:
        stripped = piece.strip()
        if joined and stripped:
            joined += _between(joined, stripped)
        joined += stripped
    return joined


def word_ends_between(left: str, right: str) -> bool:
    """Whether a text may be cut between two characters without cutting a word or a character.

    Words end at white space, and beside the letters and marks of scripts that are written without
    spaces. `left` is no white space then: a space goes with the word behind it.
    """
    if left.isspace() or unicodedata.category(left) == "Cf":
        return False
    if unicodedata.category(right) in _ATTACHED_CATEGORIES:
        return False
    wide = any(_is_unspaced(ord(c)) or _is_wide_mark(c) for c in (left, right))
    return right.isspace() or wide


def _between(left: str, right: str) -> str:
    if _is_wide_mark(left[-1]) or _is_wide_mark(right[0]):
        return ""
    if unicodedata.category(left[-1]) in _OPENING or _starts_attached(right):
        return ""
    unspaced = {_script_is_unspaced(reversed(left)), _script_is_unspaced(right)} - {None}
    return "" if unspaced == {True} else " "


def _starts_attached(text: str) -> bool:
    """Whether it begins with a mark of the word before; ".5" and "..." begin anew."""
    if text[0] in _ATTACHED_MARKS:
        return not (text[0] in ".," and text[1:2].isdecimal()) and not text.startswith("..")
    return unicodedata.category(text[0]) in _CLOSING


def _is_wide_mark(character: str) -> bool:
    """Full-width punctuation, which carries its own space."""
    return unicodedata.category(character).startswith("P") and (
        unicodedata.east_asian_width(character) in "WF"
    )


def _script_is_unspaced(characters: Iterable[str]) -> bool | None:
    """Of the first letter that comes: is its script written without spaces? None without one."""
    for character in characters:
        if _is_unspaced(ord(character)):
            return True
        if character.isalpha():
            return False
    return None


def _is_unspaced(point: int) -> bool:
    place = bisect_right(_STARTS, point) - 1
    return place >= 0 and point <= _UNSPACED[place][1]
