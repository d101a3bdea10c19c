"""Long text into pieces to be spoken one by one: cut at sentences, else clauses, else words."""

# ruff: noqa: RUF001 (punctuation of all scripts looks alike, and is meant)

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from stapes.errors import RequestError

#: Ends of sentences that need no space behind them: East Asian, Indic, Arabic, Ethiopic and others.
_FULL_STOPS = "。！？｡．‼⁇⁈⁉।॥؟۔።፧፨။།༎៕៖։᙮᠃᠉"
#: Ends that are ends before a space, a closing mark or the end of the text alone: 3.14, a.b, ?!.
_STOPS = ".!?…"
_CLOSING = "\"'”’»›)]}」』】》〉）］"
_CLAUSES = ",;:—–、，；：،؛፣፤၊"

#: Words before a full stop that end no sentence, in lower case and without their last stop.
_ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof sr jr st rev gen col capt lt sgt hon messrs mt ft vs etc cf al approx dept
    est fig figs no nos vol pp ed eds inc ltd co corp jan feb mar apr jun jul aug sep sept oct nov
    dec e.g i.e a.m p.m ca bzw usw z.b d.h u.a s.o evtl ggf nr str hr fr bspw vgl inkl zzgl mme
    mlle mm p.ex env av bd sra srta ud uds pág núm ej sig dott ing ecc
    """.split()  # noqa: SIM905 (a list of so many quoted words could not be read)
)
# Words whose stop may end a sentence as well; a capital behind it decides.
_MAY_END = {"etc", "co", "inc", "ltd", "corp", "al", "jr", "sr", "a.m", "p.m", "usw", "ecc"}

_PARAGRAPH = re.compile(r"\n\s*\n")
_STOP_RUN = re.compile(f"[{re.escape(_STOPS + _FULL_STOPS)}]+[{re.escape(_CLOSING)}]*")
_CLAUSE_END = re.compile(f"[{re.escape(_CLAUSES)}]+[{re.escape(_CLOSING)}]*")

_NEARBY = 60  # characters that are looked at on either side of a stop

WIDE = 3
"""What a letter counts that is a syllable or a word (Chinese, Japanese, Korean): spoken, it takes
about three times as long as a letter of an alphabet."""


def spoken_length(text: str) -> int:
    """Characters of a text, with wide ones counted as `WIDE`."""
    return sum(WIDE if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, without spaces around them; line breaks become spaces.

    A sentence ends with the punctuation of any script, and with an empty line. Stops in numbers,
    addresses, initials and common abbreviations end none, nor do those behind one or two digits.
    """
    return [
        found for part in _PARAGRAPH.split(text) for found in _sentences(" ".join(part.split()))
    ]


def speech_pieces(text: str, longest: int) -> list[str]:
    """Pieces of at most so many characters (`spoken_length`), which hold all words in order.

    Whole sentences are put together while they fit. A sentence that is longer by itself is cut
    behind clauses, else between words, else anywhere.

    Args:
        text: of any length.
        longest: most characters, 10 or more.

    Raises:
        RequestError: longest is too small.
    """
    if longest < 10:
        raise RequestError(f"A piece of text has 10 characters or more, not {longest}.")
    parts = [part for sentence in sentences(text) for part in _fitting(sentence, longest)]
    return list(_together(parts, longest))


def _sentences(paragraph: str) -> Iterator[str]:
    start = 0
    for run in _STOP_RUN.finditer(paragraph):
        if _ends(paragraph, run):
            yield paragraph[start : run.end()].strip()
            start = run.end()
    rest = paragraph[start:].strip()
    if rest:
        yield rest


def _ends(text: str, run: re.Match[str]) -> bool:
    """Whether a run of stops, closing marks included, ends a sentence."""
    before = text[max(0, run.start() - _NEARBY) : run.start()]
    behind = text[run.end() : run.end() + _NEARBY]
    if not before.strip():
        return False
    if any(c in _FULL_STOPS for c in run[0]) and run[0][0] != "．":
        return True
    if behind and not behind[0].isspace():  # 3.14, example.org, a.m.
        return False
    following = behind.lstrip()[:1]
    if run[0].startswith("...") or run[0].startswith("…"):
        return not following.islower()
    return run[0][0] != "." or not _abbreviated(before, following)


def _abbreviated(before: str, following: str) -> bool:
    """Whether the stop behind a text belongs to its last word."""
    word = before.split()[-1].lstrip("\"'“‘«‹([{„").lower()
    if word in _MAY_END:
        return following.islower()
    if word in _ABBREVIATIONS:
        return bool(following)
    initial = len(word) == 1 and word.isalpha() and word not in "i"
    initials = bool(re.fullmatch(r"(\w\.)+\w", word))  # U.S, e.g
    if initial or initials:
        return bool(following) and (initial or following.islower())
    return bool(following) and word.isdecimal() and len(word) <= 2  # am 3. Oktober; 1. First


def _fitting(sentence: str, longest: int) -> list[str]:
    """The sentence, or parts of it that are not too long."""
    if spoken_length(sentence) <= longest:
        return [sentence]
    clauses = _cut(sentence, [run.end() for run in _CLAUSE_END.finditer(sentence)])
    words = [w for clause in _together(clauses, longest) for w in _words(clause, longest)]
    return list(words)


def _words(clause: str, longest: int) -> Iterator[str]:
    if spoken_length(clause) <= longest:
        yield clause
        return
    words = [letters for word in clause.split() for letters in _letters(word, longest)]
    yield from _together(words, longest)


def _letters(word: str, longest: int) -> Iterator[str]:
    """A word, or parts of one that is too long by itself, marks kept with their letters."""
    part = ""
    for character in word:
        mark = unicodedata.category(character).startswith("M")
        if not mark and spoken_length(part + character) > longest:
            yield part
            part = ""
        part += character
    yield part


def _cut(text: str, ends: list[int]) -> list[str]:
    """Parts of a text that end there; a decimal comma is no place to cut."""
    kept = [
        e
        for e in ends
        if e < len(text) and not (text[e].isdecimal() and text[e - 2 : e - 1].isdecimal())
    ]
    parts = [text[a:b].strip() for a, b in zip([0, *kept], [*kept, len(text)], strict=True)]
    return [part for part in parts if part]


def _together(parts: list[str], longest: int) -> Iterator[str]:
    """Neighbours put together while they fit."""
    whole = ""
    for part in parts:
        joined = whole + _space(whole, part) + part
        if whole and spoken_length(joined) > longest:
            yield whole
            joined = part
        whole = joined
    if whole:
        yield whole


def _space(left: str, right: str) -> str:
    """What stands between two parts: nothing where a script without spaces goes on."""
    wide = left and right and unicodedata.east_asian_width(left[-1]) in "WF"
    return "" if not left or wide else " "
