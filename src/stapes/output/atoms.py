"""Where a text may be broken into lines and subtitles, and how much each break would disturb."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stapes.output.characters import binds, clusters, columns, is_square
from stapes.output.spoken import SpokenText

# Full-width and half-width forms are looked up as the common ones.
_SENTENCE_ENDS = frozenset(".?!。؟।॥\u06d4")
_CLAUSE_ENDS = frozenset(",;:、،؛—\u2013")

# How much a break disturbs, in units of one subtitle more (cues.py).
_AFTER_SENTENCE = 0.0
_BESIDE_CLAUSE = 0.5
_BETWEEN_WORDS = 2.0
_INSIDE_WORD = 10.0
_LOOK_BACK = 16  # characters: room for the space, quotes and brackets behind a sentence


@dataclass(frozen=True)
class Atom:
    """A part of the text that stays on one line, and when it is spoken.

    Attributes:
        joint: what stands between it and the atom before on the same line: " " or "".
        badness: of a break before it.
        columns: its width, never more than a line's.
        start_ms, end_ms: of the recording.
    """

    text: str
    joint: str
    badness: float
    columns: int
    start_ms: int
    end_ms: int


def joined(atoms: Sequence[Atom]) -> str:
    """The text of consecutive atoms on one line."""
    return "".join(atom.joint + atom.text for atom in atoms)[len(atoms[0].joint) :]


def atoms_of(spoken: SpokenText, line_columns: int) -> list[Atom]:
    """The smallest parts of the text that may stand alone on a line of so many columns."""
    parts = _parts(spoken, line_columns)
    return [_atom(spoken, first, last) for first, last in parts if spoken.text[first:last].strip()]


def _atom(spoken: SpokenText, first: int, last: int) -> Atom:
    """Characters first..last-1 without the white space around them."""
    text = spoken.text[first:last].strip()
    start = spoken.text.index(text, first)
    head = spoken.text[max(0, start - _LOOK_BACK) : start]
    is_spaced = head[-1:].isspace()
    return Atom(
        text=text,
        joint=" " if is_spaced else "",
        badness=_badness(head.rstrip(), text, is_spaced or start in spoken.word_starts),
        columns=columns(text),
        start_ms=round(spoken.starts_s[start] * 1000),
        end_ms=round(spoken.ends_s[start + len(text) - 1] * 1000),
    )


def _parts(spoken: SpokenText, line_columns: int) -> Iterator[tuple[int, int]]:
    """First and last + 1 of the parts between places where a break is fine or must be."""
    first = 0
    for at in range(1, len(spoken.text) + 1):
        if at == len(spoken.text) or _may_break(spoken, at):
            yield from _fitting(spoken.text, first, at, line_columns)
            first = at


def _fitting(text: str, first: int, last: int, line_columns: int) -> Iterator[tuple[int, int]]:
    """The part itself, or in pieces when it is wider than a line."""
    used, at = 0, first
    for cluster in clusters(text[first:last]):
        width = columns(cluster)
        if used + width > line_columns:
            yield first, at
            first, used = at, 0
        used += width
        at += len(cluster)
    yield first, last


def _may_break(spoken: SpokenText, at: int) -> bool:
    left, right = spoken.text[at - 1], spoken.text[at]
    if " " in (left, right):
        return left == " "
    if at in spoken.word_starts or is_square(left) or is_square(right):
        return not binds(left, right)
    return False


def _badness(head: str, text: str, is_word: bool) -> float:
    """Of a break between the end of the text so far and what follows."""
    if not head:
        return 0.0
    if binds(head[-1], text[0]) and not any(map(str.isalnum, text)):
        return _INSIDE_WORD  # a mark that stands apart, as in "quoi ?"
    if not (is_word or is_square(head[-1]) or is_square(text[0])):
        return _INSIDE_WORD
    end = _ending(head)
    if end in _SENTENCE_ENDS:
        return _AFTER_SENTENCE
    opens = unicodedata.category(text[0]) in {"Ps", "Pi"}
    return _BESIDE_CLAUSE if opens or end in _CLAUSE_ENDS else _BETWEEN_WORDS


def _ending(head: str) -> str:
    """The last character before closing quotes and brackets; "" when there are only those."""
    for character in reversed(head):
        if character not in "\"'" and unicodedata.category(character) not in {"Pe", "Pf"}:
            return unicodedata.normalize("NFKC", character)[-1]
    return ""
