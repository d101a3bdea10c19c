"""`stapes bench kernels`: one linear layer in every format, against the machine's limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stapes.bench.measure import Sgemm, StreamingRead, in_turn, open_engine
from stapes.graph import NO_TRACE, Engine, GraphBuilder, NativeExecutor, NoTracer
from stapes.options import WEIGHT_FORMATS, ActivationBits
from stapes.weights import MatrixPacker

ROTATE_BYTES = 120_000_000  # weights are read from memory, not from a cache
_FEW_ROWS = 24
_FEW_ROW_PASSES = 10  # over all copies: 40 ms and more, beside which waking up does not count
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
    activation_bits: ActivationBits = 13

    def copies(self, nbytes: int) -> int:
        """Copies of a layer of so many bytes that leave no cache warm when all are run."""
        return max(2, -(-ROTATE_BYTES // nbytes))

    def matrix(self) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """The layer's weights [out, in], the same each time."""
        shape = (self.out_features, self.in_features)
        return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)

    def inputs(self, rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """The layer's inputs [rows, in], the same each time."""
        shape = (rows, self.in_features)
        return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


class Layers(Protocol):
    """Copies of one layer in one format."""

    @property
    def nbytes(self) -> int:
        """Bytes of one copy's weights."""
        ...

    @property
    def copies(self) -> int:
        """Number of copies."""
        ...

    def runner(self, rows: int) -> Callable[[], object]:
        """Runs every copy once, on `rows` rows."""
        ...


class Peer(Protocol):
    """Another library that multiplies the same matrix."""

    name: str

    def about(self) -> dict[str, object]:
        """What it is and how it was run."""
        ...

    def layers(self, format: str) -> Layers | None:
        """Its layers to run beside ours in this format; None if it has none."""
        ...


class OurLayers:
    """Layers of the native core."""

    def __init__(self, engine: Engine, format: str, bench: KernelBench, tracer: NoTracer) -> None:
        packer, matrix = MatrixPacker(engine, format), bench.matrix()
        self._bench = bench
        self.nbytes = packer.pack("layer", matrix).nbytes
        self.copies = bench.copies(self.nbytes)
        g = GraphBuilder("rows")
        x = g.input("x", "rows", bench.in_features)
        outputs = [g.linear(x, packer.pack("layer", matrix)) for _ in range(self.copies)]
        g.output("y", outputs[-1])
        self._executor = NativeExecutor(g.build(), engine, tracer, bench.activation_bits)

    def runner(self, rows: int) -> Callable[[], object]:
        """See `Layers.runner`."""
        x = self._bench.inputs(rows)
        return lambda: self._executor.run({"x": x})


def _repeated(work: Callable[[], object], times: int) -> Callable[[], object]:
    return lambda: [work() for _ in range(times)]


class _Table:
    """Rows of figures, and the machine's limits that were measured beside each."""

    def __init__(self, bench: KernelBench, engine: Engine) -> None:
        self._bench = bench
        self._read = StreamingRead(engine)
        self._sgemm = Sgemm(_SGEMM_ROWS, bench.out_features, bench.in_features)
        self.reads: list[float] = []
        self.products: list[float] = []

    def measure(
        self, format: str, rows: int, all_layers: Sequence[Layers]
    ) -> list[dict[str, object]]:
        """A row of figures of each of the layers, all timed in turn."""
        passes = _FEW_ROW_PASSES if rows <= _FEW_ROWS else 1
        works = [_repeated(layers.runner(rows), passes) for layers in all_layers]
        read_s, sgemm_s, *seconds = in_turn([self._read, self._sgemm, *works], self._bench.rounds)
        self.reads.append(self._read.gb_s(read_s))
        self.products.append(self._sgemm.gflops(sgemm_s))
        return [
            self._row(format, rows, layers.nbytes, total_s / layers.copies / passes)
            for layers, total_s in zip(all_layers, seconds, strict=True)
        ]

    def _row(self, format: str, rows: int, nbytes: int, seconds: float) -> dict[str, object]:
        bench = self._bench
        gb_s = nbytes / seconds / 1e9
        gflops = 2 * rows * bench.out_features * bench.in_features / seconds / 1e9
        return {
            "format": format,
            "rows": rows,
            "out": bench.out_features,
            "in": bench.in_features,
            "ms": round(seconds * 1e3, 4),
            "gb_s": round(gb_s, 2),
            "gflops": round(gflops, 2),
            "share_of_read": round(gb_s / self.reads[-1], 3),
            "share_of_sgemm": round(gflops / self.products[-1], 3),
            "weight_bytes": nbytes,
        }


def run(
    bench: KernelBench,
    make_peers: Sequence[Callable[[KernelBench, int], Peer]] = (),
    tracer: NoTracer = NO_TRACE,
) -> dict[str, object]:
    """The figures of all formats and rows; every one is timed in turn with read and sgemm.

    A peer is made with the number of threads; it runs in the same rounds.
    """
    engine = open_engine(bench.threads, bench.instruction_set)
    peers = [make(bench, engine.threads) for make in make_peers]
    table = _Table(bench, engine)
    linear: list[dict[str, object]] = []
    beside: dict[str, list[dict[str, object]]] = {peer.name: [] for peer in peers}
    for format in bench.formats:
        ours = OurLayers(engine, format, bench, tracer)
        offered = {peer.name: peer.layers(format) for peer in peers}
        theirs = {name: layers for name, layers in offered.items() if layers is not None}
        for rows in bench.rows:
            own, *others = table.measure(format, rows, [ours, *theirs.values()])
            linear.append(own)
            for name, other in zip(theirs, others, strict=True):
                beside[name].append(_compared(other, own))
    result = {
        "bench": "kernels",
        "threads": engine.threads,
        "instruction_set": engine.instruction_set,
        "activation_bits": bench.activation_bits,
        "streaming_read_gb_s": round(float(np.median(table.reads)), 2),
        "sgemm_gflops": round(float(np.median(table.products)), 1),
        "linear": linear,
    }
    if peers:
        result["versus"] = {p.name: {**p.about(), "linear": beside[p.name]} for p in peers}
    return result


def _compared(other: dict[str, object], own: dict[str, object]) -> dict[str, object]:
    """`ratio` is how many times as long the peer took as we did."""
    return {**other, "ratio": round(_ms(other) / _ms(own), 3)}


def _ms(row: dict[str, object]) -> float:
    assert isinstance(row["ms"], float)
    return row["ms"]
