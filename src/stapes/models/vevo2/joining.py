"""Pieces of sound into one, without clicks; and the pieces into which a long recording is cut.

Pieces that were spoken one by one are faded at their seams and have a short pause between them;
pieces of one recording overlap, and are cross-faded there. Sound comes out as soon as it is final.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stapes.models.vevo2.voice import HOP, SAMPLE_RATE

F32 = NDArray[np.float32]

FADE = SAMPLE_RATE // 100
"""Samples of a fade at a seam: 10 ms, too short to take anything from a word, and longer than half
a period of 50 Hz, so that nothing jumps."""

PAUSE = SAMPLE_RATE * 15 // 100
"""Samples of silence between two spoken pieces: 150 ms; the model adds pauses of its own."""

OVERLAP = 5 * HOP
"""Samples that neighbouring pieces of a recording share: 100 ms, whole frames."""

LONGEST_PIECE = 30 * SAMPLE_RATE
"""Samples of a piece of a recording: what Whisper hears."""

_EARLIEST_CUT = 20 * SAMPLE_RATE  # a piece is not cut before
_LOUDNESS_FRAMES = 5  # over which loudness is averaged where a cut is looked for


def with_pauses(pieces: Iterable[F32], count: int) -> Iterator[F32]:
    """So many pieces f32 [n], faded at the seams; each but the last with the pause behind it.

    The first sample of the first piece and the last one of the last are no seams.
    """
    silence = np.zeros(PAUSE, np.float32)
    for index, piece in enumerate(pieces):
        faded = piece.copy()
        ramp = _ramp(min(FADE, len(piece) // 2))
        if index > 0:
            faded[: len(ramp)] *= ramp
        if index + 1 < count:
            faded[len(faded) - len(ramp) :] *= ramp[::-1]
            faded = np.append(faded, silence)
        yield faded


def crossfaded(pieces: Iterable[F32], overlap: int = OVERLAP) -> Iterator[F32]:
    """Pieces f32 [n] that overlap their neighbours by so many samples, n > 2 * overlap."""
    ramp, held = _ramp(overlap), None
    for piece in pieces:
        mixed = piece.copy()
        if held is not None:
            mixed[:overlap] = piece[:overlap] * ramp + held * ramp[::-1]
        yield mixed[: len(mixed) - overlap]
        held = mixed[len(mixed) - overlap :]
    if held is not None:
        yield held


def cuts(samples: F32) -> Sequence[tuple[int, int]]:
    """[start, stop) of the pieces of a recording: at most `LONGEST_PIECE` each.

    They begin at whole frames, where it is quietest, and overlap by `OVERLAP`.
    """
    found, start = [], 0
    while len(samples) - start > LONGEST_PIECE:
        stop = start + LONGEST_PIECE
        # The last piece is to be no shorter than a pause for breath would make it.
        early = min(start + _EARLIEST_CUT, len(samples) - LONGEST_PIECE // 2)
        cut = _quietest(samples, early, stop - OVERLAP)
        found.append((start, cut + OVERLAP))
        start = cut
    return (*found, (start, len(samples)))


def levelled(samples: F32, level_db: float | None) -> F32:
    """The samples at an RMS level relative to full scale; no peak goes beyond full scale for it."""
    if level_db is None or not samples.any():
        return samples
    wide = samples.astype(np.float64)
    gain = 10 ** (level_db / 20) / np.sqrt(np.mean(wide**2))
    scaled: F32 = (wide * min(gain, 1 / np.abs(wide).max())).astype(np.float32)
    return scaled


def _quietest(samples: F32, start: int, stop: int) -> int:
    """The frame boundary in [start, stop) around which it is quietest."""
    first = -(-start // HOP)
    frames = samples[(first - _LOUDNESS_FRAMES) * HOP : (stop // HOP) * HOP].astype(np.float64)
    power = np.square(frames).reshape(-1, HOP).mean(axis=1)
    width = 2 * _LOUDNESS_FRAMES
    around = np.convolve(power, np.ones(width), "valid")
    return (first + int(np.argmin(around))) * HOP


def _ramp(length: int) -> F32:
    """From 0 to 1, f32 [length]; read backwards and added to itself it is 1 throughout."""
    steps = (np.arange(length) + 0.5) / max(length, 1)
    return (0.5 - 0.5 * np.cos(np.pi * steps)).astype(np.float32)
