"""Times that a model gave one by one, brought into order.

The model chooses the class of each time on its own, so that one may lie before its predecessor. The
longest run of times in order is believed; what does not fit into it is replaced, as in the
official package.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

_SNAPPED = 2  # outliers in a row that are moved to a neighbour; more are spread between the two


def in_order(times: Sequence[float]) -> list[float]:
    """The times with as few as possible replaced so that none lies before its predecessor.

    One or two outliers in a row take the value of the neighbour that is nearer in the sequence (the
    left one when both are); more are spread evenly between both. At an end there is one neighbour.
    """
    good = longest_ascending(times)
    repaired = list(times)
    for left, right in zip([-1, *good], [*good, len(times)], strict=True):
        for at in range(left + 1, right):
            repaired[at] = _replacement(times, left, at, right)
    return repaired


def _replacement(times: Sequence[float], left: int, at: int, right: int) -> float:
    """For an outlier among those between two good ones; -1 and len(times) stand for none."""
    if left < 0 or right == len(times):
        return times[right] if left < 0 else times[left]
    if right - left - 1 <= _SNAPPED:
        return times[left] if at - left <= right - at else times[right]
    step = (times[right] - times[left]) / (right - left)
    return min(times[left] + step * (at - left), times[right])


def longest_ascending(values: Sequence[float]) -> list[int]:
    """Where the longest non-decreasing subsequence lies: ascending indices.

    Of several, the one that ends first; each of its members has the first possible predecessor.
    """
    # levels[k]: the indices at which the longest subsequence that ends there has k + 1 members.
    # Along a level values fall, since a later one that did not would be a level higher.
    levels: list[list[int]] = []
    lowest: list[float] = []  # the last value of each level, which never falls from level to level
    before: list[int] = []
    for at, value in enumerate(values):
        level = bisect_right(lowest, value)
        if level == len(levels):
            levels.append([])
            lowest.append(value)
        before.append(_first_not_above(values, levels[level - 1], value) if level else -1)
        levels[level].append(at)
        lowest[level] = value
    found: list[int] = []
    at = levels[-1][0] if levels else -1
    while at >= 0:
        found.append(at)
        at = before[at]
    return found[::-1]


def _first_not_above(values: Sequence[float], falling: Sequence[int], value: float) -> int:
    return falling[bisect_left(falling, -value, key=lambda at: -values[at])]
