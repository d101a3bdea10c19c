"""`stapes bench kernels`: one linear layer in every format, against the machine's limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stapes.bench.measure import Sgemm, StreamingRead, in_turn
from stapes.errors import RequestError
from stapes.graph import Engine, GraphBuilder, NativeExecutor
from stapes.graph.native import instruction_sets
from stapes.options import WEIGHT_FORMATS
from stapes.system import default_threads
from stapes.weights import MatrixPacker, PackedMatrix

_ROTATE_BYTES = 120_000_000  # weights are read from memory, not from a cache
_SGEMM_ROWS = 512


@dataclass(frozen=True)
class KernelBench:
    """What to run."""

    out_features: int = 3072
    in_features: int = 1024
    rows: tuple[int, ...] = (1, 4, 8, 24, 512)
    formats: tuple[str, ...] = WEIGHT_FORMATS
    threads: int | None = None
    instruction_set: str = "auto"
    rounds: int = 5


class _Layers:
    """Copies of one layer, enough that rotating over them leaves no cache warm."""

    def __init__(self, engine: Engine, format: str, bench: KernelBench) -> None:
        rng = np.random.default_rng(0)
        shape = (bench.out_features, bench.in_features)
        packed = MatrixPacker(engine, format).pack(
            "layer", rng.standard_normal(shape, dtype=np.float32)
        )
        self.nbytes = packed.nbytes
        self.copies = max(2, -(-_ROTATE_BYTES // packed.nbytes))
        g = GraphBuilder("rows")
        x = g.input("x", "rows", bench.in_features)
        outputs = [g.linear(x, _copy(packed)) for _ in range(self.copies)]
        g.output("y", outputs[-1])
        self._executor = NativeExecutor(g.build(), engine)

    def runner(self, rows: int, in_features: int) -> Callable[[], object]:
        """Runs every copy once, on `rows` rows."""
        x = np.random.default_rng(1).standard_normal((rows, in_features), dtype=np.float32)
        return lambda: self._executor.run({"x": x})


def _copy(packed: PackedMatrix) -> PackedMatrix:
    return PackedMatrix(packed.format, packed.out_features, packed.in_features, packed.data.copy())


def run(bench: KernelBench) -> dict[str, object]:
    """The figures of all formats and rows; every one is timed in turn with read and sgemm."""
    available = ("auto", *instruction_sets())
    if bench.instruction_set not in available:
        raise RequestError(
            f"The instruction set {bench.instruction_set!r} is not one of {', '.join(available)}, "
            "which this processor has."
        )
    engine = Engine(bench.threads or default_threads(), bench.instruction_set)
    read, sgemm = (
        StreamingRead(engine),
        Sgemm(_SGEMM_ROWS, bench.out_features, bench.in_features),
    )
    linear = []
    reads, products = [], []
    for format in bench.formats:
        layers = _Layers(engine, format, bench)
        for rows in bench.rows:
            work = layers.runner(rows, bench.in_features)
            read_s, sgemm_s, total_s = in_turn([read, sgemm, work], bench.rounds)
            reads.append(read.gb_s(read_s))
            products.append(sgemm.gflops(sgemm_s))
            seconds = total_s / layers.copies
            linear.append(_row(bench, format, rows, layers, seconds, reads[-1], products[-1]))
    return {
        "bench": "kernels",
        "threads": engine.threads,
        "instruction_set": engine.instruction_set,
        "streaming_read_gb_s": round(float(np.median(reads)), 2),
        "sgemm_gflops": round(float(np.median(products)), 1),
        "linear": linear,
    }


def _row(
    bench: KernelBench,
    format: str,
    rows: int,
    layers: _Layers,
    seconds: float,
    read_gb_s: float,
    sgemm_gflops: float,
) -> dict[str, object]:
    gb_s = layers.nbytes / seconds / 1e9
    gflops = 2 * rows * bench.out_features * bench.in_features / seconds / 1e9
    return {
        "format": format,
        "rows": rows,
        "out": bench.out_features,
        "in": bench.in_features,
        "ms": round(seconds * 1e3, 4),
        "gb_s": round(gb_s, 2),
        "gflops": round(gflops, 2),
        "share_of_read": round(gb_s / read_gb_s, 3),
        "share_of_sgemm": round(gflops / sgemm_gflops, 3),
    }
