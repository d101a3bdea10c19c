"""Measuring: medians of several rounds, things compared in turn, the machine's own limits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from stapes.errors import RequestError
from stapes.graph import Engine
from stapes.graph.native import instruction_sets, stream_sum
from stapes.system import default_threads

_READ_BYTES = 1 << 29  # far beyond any cache
_SETTLE_S = 0.2  # threads of what ran before may spin for work: OpenBLAS's do, for 0.1 s and more


def open_engine(threads: int | None, instruction_set: str) -> Engine:
    """An engine with kernels of an instruction set; "auto" is the best one.

    Raises:
        RequestError: the processor does not have it.
    """
    available = ("auto", *instruction_sets())
    if instruction_set not in available:
        raise RequestError(
            f"The instruction set {instruction_set!r} is not one of {', '.join(available)}, "
            "which this processor has."
        )
    return Engine(threads or default_threads(), instruction_set)


def seconds_of(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _settled_seconds_of(work: Callable[[], object]) -> float:
    time.sleep(_SETTLE_S)
    return seconds_of(work)


def _nothing() -> None:
    pass


def rounds_in_turn(
    works: Sequence[Callable[[], object]],
    rounds: int,
    between: Callable[[], object] = _nothing,
    uncounted: int = 1,
) -> list[tuple[float, ...]]:
    """Seconds of each piece of work in every round, in which one runs after another.

    The first `uncounted` rounds come before those. `between` runs after every round, untimed.
    """
    runs = []
    for _ in range(rounds + uncounted):
        runs.append([_settled_seconds_of(work) for work in works])
        between()
    return list(zip(*runs[uncounted:], strict=True))


def in_turn(works: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Median seconds of each piece of work; see `rounds_in_turn`."""
    return [statistics.median(column) for column in rounds_in_turn(works, rounds)]


class StreamingRead:
    """A sum over an array of 512 MB on all of an engine's threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._array = np.ones(_READ_BYTES // 4, np.float32)

    def __call__(self) -> None:
        """Read it once."""
        stream_sum(self._engine, self._array)

    def gb_s(self, seconds: float) -> float:
        """GB/s of a call that took so long."""
        return _READ_BYTES / seconds / 1e9


class Sgemm:
    """NumPy's (OpenBLAS's) product [rows, in] x [in, out] in f32."""

    def __init__(self, rows: int, out_features: int, in_features: int) -> None:
        rng = np.random.default_rng(0)
        self._x = rng.standard_normal((rows, in_features), dtype=np.float32)
        self._w = rng.standard_normal((in_features, out_features), dtype=np.float32)
        self._y = np.empty((rows, out_features), np.float32)
        self.flops = 2 * rows * out_features * in_features

    def __call__(self) -> None:
        """Multiply once."""
        np.matmul(self._x, self._w, out=self._y)

    def gflops(self, seconds: float) -> float:
        """GFLOP/s of a call that took so long."""
        return self.flops / seconds / 1e9
