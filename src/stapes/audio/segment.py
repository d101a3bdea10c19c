"""Cutting long recordings at quiet points."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stapes.audio.recording import SAMPLE_RATE
from stapes.errors import RequestError

HOP = 160
"""Samples: cuts lie on this grid of 10 ms, which is also that of the mel frames."""

SMOOTHING_HOPS = 30
"""0.3 s: longer than the closure of a plosive (about 0.1 s), as long as a short pause."""

MIN_PIECE_SECONDS = 1.0


@dataclass(frozen=True)
class Span:
    """Samples [start, end) of a recording."""

    start: int
    end: int


def split_at_quiet(samples: NDArray[np.float32], max_seconds: float = 30.0) -> list[Span]:
    """Cut a recording into pieces that cover it without gap or overlap, in order.

    A piece ends at the quietest 0.3 s within the last third of the longest piece allowed; what is
    left near the end is shared between the last two. So every piece of a recording that must be
    cut is at least a third of the longest piece.

    Args:
        samples: f32 [n], mono, 16 kHz.
        max_seconds: longest piece, at least 1 s.

    Returns:
        The spans; one when the recording is not longer than ``max_seconds``, none when it is empty.

    Raises:
        RequestError: ``samples`` is not of one axis, or ``max_seconds`` is below 1 or not finite.
    """
    if samples.ndim != 1:
        raise RequestError(f"Only samples (n,) can be cut, not the shape {samples.shape}.")
    if not MIN_PIECE_SECONDS <= max_seconds < float("inf"):
        raise RequestError(
            f"max_seconds must be at least {MIN_PIECE_SECONDS}, not {max_seconds!r}."
        )
    longest = int(max_seconds * SAMPLE_RATE)
    cuts = [0]
    while samples.size - cuts[-1] > longest:
        low, high = _search_window(samples.size - cuts[-1], longest)
        cuts.append(quietest(samples, cuts[-1] + low, cuts[-1] + high))
    if samples.size:
        cuts.append(samples.size)
    return [Span(start, end) for start, end in pairwise(cuts)]


def _search_window(left: int, longest: int) -> tuple[int, int]:
    """Where the next piece may end, for ``left`` > ``longest`` samples that are left.

    Near the end of the recording a window around the middle keeps both last pieces above a third
    of ``longest``; before that, the last third leaves at least a third for the next piece.
    """
    if 3 * left <= 4 * longest:
        return left // 2 - longest // 6, left // 2 + longest // 6
    return 2 * longest // 3, longest


def quietest(samples: NDArray[np.float32], low: int, high: int) -> int:
    """The sample in [low, high], on the 10 ms grid, around which the smoothed energy is lowest.

    Of equally quiet points the last one, so that silence is cut into long pieces. ``samples``, f32
    [n], must reach 0.15 s beyond both ends, so that the smoothing never meets one.
    """
    first, last = -(-low // HOP), high // HOP
    begin, end = first - SMOOTHING_HOPS // 2, last + SMOOTHING_HOPS // 2
    frames = samples[begin * HOP : end * HOP].reshape(-1, HOP).astype(np.float64)
    frames -= frames.mean()  # a constant offset is no energy
    energy = np.einsum("fs,fs->f", frames, frames)
    around = np.convolve(energy, np.ones(SMOOTHING_HOPS), mode="valid")  # one for first .. last
    return (last - int(around[::-1].argmin())) * HOP
