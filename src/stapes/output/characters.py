"""Characters as a reader sees them: which code points belong together, and how wide they are."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache

_ZERO_WIDTH_JOINER = "\u200d"
# Beginnings of the Unicode names of what is written in squares, without spaces between words.
_SQUARE = (
    "CJK ", "IDEOGRAPHIC ", "HIRAGANA ", "KATAKANA", "HALFWIDTH KATAKANA", "BOPOMOFO ",
    "FULLWIDTH ",
)  # fmt: skip
# They end a syllable or a word, and never begin a line.
_SMALL_KANA = frozenset("ぁぃぅぇぉっゃゅょゎゕゖァィゥェォッャュョヮヵヶ")


def clusters(text: str) -> Iterator[str]:
    """The text in parts that must not be torn: a letter with its marks, a joined emoji, a flag."""
    cluster = ""
    for character in text:
        if cluster and _continues(cluster, character):
            cluster += character
            continue
        if cluster:
            yield cluster
        cluster = character
    if cluster:
        yield cluster


def columns(text: str) -> int:
    """Width of a line: 2 for each full-width character or emoji, 0 for marks, 1 for the others."""
    if text.isascii():
        return len(text)
    return sum(max(map(_width, cluster)) for cluster in clusters(text))


@lru_cache(maxsize=4096)
def is_square(character: str) -> bool:
    """Whether it belongs to Chinese or Japanese writing, in which a line may end anywhere."""
    return unicodedata.name(character, "").startswith(_SQUARE)


@lru_cache(maxsize=4096)
def is_wide_letter(character: str) -> bool:
    """Whether it is a letter as wide as two: Chinese, Japanese, Korean; emoji are no letters."""
    return character.isalpha() and _width(character) == 2


def binds(left: str, right: str) -> bool:
    """Whether no line should end between two characters: marks stay with what they belong to."""
    category = unicodedata.category(right)
    return (
        category[0] == "M"
        or category in {"Pe", "Pf", "Po", "Pd", "Lm", "Cf"}
        or right in _SMALL_KANA
        or unicodedata.category(left) in {"Ps", "Pi", "Cf"}
    )


def _continues(cluster: str, character: str) -> bool:
    if character.isascii():
        return False
    if cluster[-1] == _ZERO_WIDTH_JOINER or _width(character) == 0:
        return True
    if _is_regional(character):
        return len(cluster) == 1 and _is_regional(cluster)
    return "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


@lru_cache(maxsize=4096)
def _width(character: str) -> int:
    # The last: vowels and finals of decomposed Hangul, which merge with the letter before them.
    if unicodedata.category(character) in {"Mn", "Me", "Mc", "Cf"} or (
        "\u1160" <= character <= "\u11ff"
    ):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
