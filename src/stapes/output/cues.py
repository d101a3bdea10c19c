"""Subtitles: a transcript as cues of at most two lines, each with the time at which it is shown.

The rules: at most two lines of 42 columns, or of 32 where the segment holds Chinese, Japanese or
Korean letters, which count as two (so 16 of them). A cue is shown for at most 7 s, and for 1 s or
more where the next cue and the recording's end leave room. Cues never overlap and lie within the
recording. Segments do not share cues; inside a segment breaks are looked for at pauses and behind
punctuation. Reading speed is not enforced: no text is left out.

Times come from the words of a segment. A segment without words is shown as a whole wherever the
rules permit; where they force a break, its time is an estimate by the share of characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, inf

from stapes.models.transcript import Transcript
from stapes.output.atoms import Atom, atoms_of, joined
from stapes.output.characters import is_wide_letter
from stapes.output.spoken import segments_of, spoken_text

LINE_COLUMNS = 42
WIDE_LINE_COLUMNS = 32
MOST_MS = 7000
LEAST_MS = 1000

# What a way of cutting costs; the cheapest is taken. One more cue is the unit.
_ONE_CUE = 1.0
_PER_SECOND_OF_PAUSE = 2.0  # taken off for a break at a pause: from 1.5 s on, it is worth it
_UNEVEN_CUES = 0.5  # for a cue that is empty; its square makes similar cues the cheapest
_UNEVEN_LINES = 4.0  # for a line that is empty beside a full one


@dataclass(frozen=True)
class Cue:
    """What is shown at one time: one or two lines, from start_ms to end_ms of the recording."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]


def cues_of(transcript: Transcript) -> list[Cue]:
    """The transcript as subtitles, in order; no text is lost or changed but for spaces."""
    groups: list[list[Atom]] = []
    lines: list[tuple[str, ...]] = []
    for segment in segments_of(transcript):
        spoken = spoken_text(segment)
        is_wide = any(map(is_wide_letter, spoken.text))
        line_columns = WIDE_LINE_COLUMNS if is_wide else LINE_COLUMNS
        for group in _cut(atoms_of(spoken, line_columns), line_columns):
            groups.append(group)
            lines.append(_lines(group, line_columns))
    # A millisecond is not cut off for a rounding error.
    duration_ms = floor(transcript.duration_s * 1000 + 1e-3)
    times = _shown(groups, duration_ms)
    return [Cue(start, end, text) for (start, end), text in zip(times, lines, strict=True)]


def _cut(atoms: list[Atom], line_columns: int) -> list[list[Atom]]:
    """The atoms as cues, by the cheapest of all ways that the rules permit."""
    cost = [0.0] + [inf] * len(atoms)
    came_from = [0] * (len(atoms) + 1)
    for first in range(len(atoms)):
        before = cost[first] + (_break_cost(atoms[first - 1], atoms[first]) if first else 0.0)
        for last, used in _possible(atoms, first, line_columns):
            emptiness = 1 - used / (2 * line_columns)
            total = before + _ONE_CUE + _UNEVEN_CUES * emptiness**2
            if total < cost[last]:
                cost[last], came_from[last] = total, first
    groups: list[list[Atom]] = []
    last = len(atoms)
    while last:
        groups.append(atoms[came_from[last] : last])
        last = came_from[last]
    return groups[::-1]


def _break_cost(left: Atom, right: Atom) -> float:
    pause_s = (right.start_ms - left.end_ms) / 1000
    return right.badness - _PER_SECOND_OF_PAUSE * pause_s


def _possible(atoms: Sequence[Atom], first: int, line_columns: int) -> Iterator[tuple[int, int]]:
    """Where a cue that begins with an atom may end, and how many columns it has then.

    A single atom is a cue however long it takes: nobody reads half a word.
    """
    lines, used, total = 1, 0, 0
    for at in range(first, len(atoms)):
        atom = atoms[at]
        if at > first and atom.end_ms - atoms[first].start_ms > MOST_MS:
            return
        width = len(atom.joint) + atom.columns if at > first else atom.columns
        if used + width > line_columns:
            lines, used, width = lines + 1, 0, atom.columns
        if lines > 2:
            return
        used += width
        total += atom.columns
        yield at + 1, total


def _lines(atoms: Sequence[Atom], line_columns: int) -> tuple[str, ...]:
    """One line where it fits, else two: broken where it disturbs little, of similar length."""
    widths = [len(atom.joint) + atom.columns for atom in atoms]
    whole = sum(widths) - len(atoms[0].joint)
    if whole <= line_columns:
        return (joined(atoms),)
    best, least = 1, inf
    left = whole - sum(widths[1:])
    for at in range(1, len(atoms)):
        right = whole - left - len(atoms[at].joint)
        if max(left, right) <= line_columns:
            cost = atoms[at].badness + _UNEVEN_LINES * abs(left - right) / line_columns
            if cost < least:
                best, least = at, cost
        left += widths[at]
    return joined(atoms[:best]), joined(atoms[best:])


def _shown(groups: Sequence[Sequence[Atom]], duration_ms: int) -> list[tuple[int, int]]:
    """Start and end of each cue; only a recording too short for its text has cues of 0 ms."""
    starts = [group[0].start_ms for group in groups]
    for k in range(1, len(starts)):
        starts[k] = max(starts[k], starts[k - 1] + 1)
    following = duration_ms
    for k in reversed(range(len(starts))):
        starts[k] = max(0, min(starts[k], following - 1))
        following = starts[k]
    times: list[tuple[int, int]] = []
    for start, group, most in zip(starts, groups, [*starts[1:], duration_ms], strict=False):
        end = max(group[-1].end_ms, start + LEAST_MS)
        times.append((start, min(end, start + MOST_MS, most)))
    return times
