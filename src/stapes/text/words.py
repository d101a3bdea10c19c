"""Splits a text into the words that an aligner times, and keeps their punctuation.

The model is given letters, digits and apostrophes alone; what is shown is the whole text, cut
between the words. A word ends

- at white space, and at full-width punctuation, which is a space and a mark in one;
- around every Han character: each is a word of its own;
- where hiragana, katakana and other letters meet: Japanese has no spaces, and this is the nearest
  to words that needs no dictionary.

So Korean is cut at its spaces, and a run of Thai is one word. Other punctuation does not divide:
"well-known" and "3.5" are one word each.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from itertools import pairwise

_TYPOGRAPHIC_APOSTROPHE = "\u2019"
_LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

_Ranges = tuple[tuple[int, int], ...]
_VARIATION_SELECTORS: _Ranges = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
# First and last code points, from Unicode's list of blocks.
_BLOCKS: dict[str, _Ranges] = {
    "han": (
        (0x3005, 0x3007),  # iteration mark, closing mark, zero
        (0x3400, 0x4DBF),  # extension A
        (0x4E00, 0x9FFF),
        (0xF900, 0xFAFF),  # compatibility
        (0x20000, 0x3FFFF),  # further extensions
    ),
    "hiragana": ((0x3040, 0x309F),),
    "katakana": ((0x30A0, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)),
}
_ANY = "any"
_WITH_ANY = ("'", _TYPOGRAPHIC_APOSTROPHE, "\u30fc", "\uff70")  # the latter lengthen any kana


@dataclass(frozen=True)
class AlignableWord:
    """A word of a text.

    Attributes:
        spelled: what the model is given: letters, digits and apostrophes, at least one letter or
            digit among them.
        shown: the stretch of the text that the word stands for, punctuation included, without
            white space at its ends.
    """

    spelled: str
    shown: str


def alignable_words(text: str) -> tuple[AlignableWord, ...]:
    """The words of a text in order; () when it holds no letter and no digit.

    What they show, joined, is the text, white space aside: no character is lost or doubled.
    """
    parts = _parts(text)
    borders = [_border(text, a.end, b.start) for a, b in pairwise(parts)]
    starts, ends = [0, *borders], [*borders, len(text)]
    return tuple(
        AlignableWord("".join(part.letters), text[start:end].strip())
        for part, start, end in zip(parts, starts, ends, strict=False)
    )


@dataclass
class _Part:
    """What is kept of text[start:end], all of one script."""

    script: str
    start: int
    end: int
    letters: list[str] = field(default_factory=list)

    def takes(self, script: str) -> bool:
        """Whether a character of this script may follow; Han characters stand alone."""
        return "han" not in (script, self.script) and (
            script == self.script or _ANY in (script, self.script)
        )


def _parts(text: str) -> list[_Part]:
    """The words without what surrounds them."""
    parts: list[_Part] = []
    is_open = False  # the last part goes on
    for at, character in enumerate(text):
        letter = _kept(text, at)
        if not letter:
            is_open = is_open and not _divides(character)
            continue
        script = _script(character)
        if not is_open or not parts[-1].takes(script):
            parts.append(_Part(script, at, at))
            is_open = True
        elif parts[-1].script == _ANY:
            parts[-1].script = script
        parts[-1].letters.append(letter)
        parts[-1].end = at + 1
    return [part for part in parts if any(map(_is_letter, part.letters))]


def _kept(text: str, at: int) -> str:
    """The character as the model is given it, or ""."""
    character = text[at]
    if _is_letter(character) or character == "'":
        return character
    if _is_mark(character):  # an accent or vowel sign of the letter before it
        is_sign = at > 0 and (_is_letter(text[at - 1]) or _is_mark(text[at - 1]))
        return character if is_sign and not _within(character, _VARIATION_SELECTORS) else ""
    is_inside = 0 < at < len(text) - 1 and all(map(_is_letter, (text[at - 1], text[at + 1])))
    return "'" if character == _TYPOGRAPHIC_APOSTROPHE and is_inside else ""


def _is_letter(character: str) -> bool:
    """Or a digit."""
    return unicodedata.category(character)[0] in "LN"


def _is_mark(character: str) -> bool:
    """A combining one."""
    return unicodedata.category(character)[0] == "M"


def _divides(character: str) -> bool:
    is_wide = unicodedata.east_asian_width(character) in "WF"
    return character.isspace() or (is_wide and unicodedata.category(character)[0] == "P")


def _script(character: str) -> str:
    """One of han, hiragana, katakana, letters; _ANY of what goes with each of the last three."""
    if character in _WITH_ANY or _is_mark(character):
        return _ANY
    found = (name for name, blocks in _BLOCKS.items() if _within(character, blocks))
    return next(found, "letters")


def _within(character: str, blocks: _Ranges) -> bool:
    return any(first <= ord(character) <= last for first, last in blocks)


def _border(text: str, end: int, start: int) -> int:
    """Where to cut text[end:start], which lies between two words.

    Behind the last line break, or else before the opening brackets and quotes of the second word,
    or else behind the last white space: marks cling to the word that they touch.
    """
    between = text[end:start]
    broken = [at for at, character in enumerate(between) if character in _LINE_BREAKS]
    if broken:
        return end + broken[-1] + 1
    tail = len(between)
    while tail and (between[tail - 1].isspace() or _opens(between[tail - 1])):
        tail -= 1
    opening = [at for at in range(tail, len(between)) if _opens(between[at])]
    if opening:
        return end + opening[0]
    spaces = [at for at, character in enumerate(between) if character.isspace()]
    return end + spaces[-1] + 1 if spaces else start


def _opens(character: str) -> bool:
    return character in "¿¡" or unicodedata.category(character) in ("Ps", "Pi")
