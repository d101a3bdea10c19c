"""One run of the decoder: the rows of any number of sessions side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.network import Want

if TYPE_CHECKING:
    from stapes.decoder.session import Session


@dataclass(frozen=True, eq=False)
class Rows:
    """What one session reads in a run, behind the positions that it holds.

    Attributes:
        session: whose rows these are.
        ids: [n] i32.
        values: [m, hidden_size] f32, injected in place of the rows index [m] i32, ascending.
        picked: [p] i32, ascending: the rows whose results are wanted.
        ranges: [k, 2] i32, ascending starts and ends of the ids that may follow; None: any may.
    """

    session: Session
    ids: NDArray[np.int32]
    values: NDArray[np.float32]
    index: NDArray[np.int32]
    picked: NDArray[np.int32]
    ranges: NDArray[np.int32] | None = None


@dataclass(frozen=True, eq=False)
class Results:
    """What a run gave for the picked rows of one session.

    Attributes:
        next: [p] i32, the first maximum of each row's logits, -1 where one is NaN.
        logits: [p, logits_size] f32 when they were asked for.
    """

    next: NDArray[np.int32]
    logits: NDArray[np.float32] | None


def run_rows(parts: Sequence[Rows], want: Want = "next") -> list[Results]:
    """Run the rows of different sessions of one decoder, together; each gets what it would alone.

    An error leaves every session with what it held before.
    """
    sizes = [part.ids.size for part in parts]
    starts = np.cumsum([0, *sizes])
    outputs = parts[0].session.decoder.run(
        _joined([part.ids for part in parts]),
        _joined([_positions(part) for part in parts]),
        np.repeat(np.arange(len(parts), dtype=np.int32), sizes),
        [part.session.cache for part in parts],
        np.concatenate([part.values for part in parts]),
        _joined([part.index + start for part, start in zip(parts, starts, strict=False)]),
        _joined([part.picked + start for part, start in zip(parts, starts, strict=False)]),
        want,
        _ranges(parts),
    )
    for part in parts:
        part.session.record.append(part.ids, part.values, part.index)
    ends = np.cumsum([part.picked.size for part in parts])[:-1]
    ids = np.split(cast("NDArray[np.int32]", outputs["next"]), ends)
    if want == "next":
        return [Results(chosen, None) for chosen in ids]
    logits = np.split(cast("NDArray[np.float32]", outputs["logits"]), ends)
    return [Results(*both) for both in zip(ids, logits, strict=True)]


def _ranges(parts: Sequence[Rows]) -> NDArray[np.int32] | None:
    """The ranges of all picked rows [k, 3], as `Decoder.run` takes them; None when none has any."""
    if all(part.ranges is None for part in parts):
        return None
    found = []
    row = 0
    for part in parts:
        for _ in range(part.picked.size):
            if part.ranges is not None:
                found.append(np.insert(part.ranges, 0, row, axis=1))
            row += 1
    return np.concatenate([np.zeros((0, 3), np.int32), *found], dtype=np.int32)


def _positions(part: Rows) -> NDArray[np.int32]:
    first = part.session.length
    return np.arange(first, first + part.ids.size, dtype=np.int32)


def _joined(arrays: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate(arrays, dtype=np.int32, casting="same_kind")
