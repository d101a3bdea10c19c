"""`stapes bench decoder`: decode steps and prefill of a full-size synthetic decoder."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from stapes.bench.clock import OpClock
from stapes.bench.measure import Sgemm, StreamingRead, open_engine, rounds_in_turn
from stapes.bench.synthetic import SYNTHETIC, RandomTensors
from stapes.bench.work import cache_bytes, prefill_bytes, prefill_flops, step_bytes, step_flops
from stapes.decoder import Decoder, DecoderWeights, Prompt, Session, load_weights
from stapes.decoder.prompt import CheckedPrompt, check_prompt
from stapes.graph import NO_TRACE, NativeExecutor, NoTracer
from stapes.options import RuntimeOptions
from stapes.system import default_threads
from stapes.weights import MatrixPacker

STEPS = 8  # decode steps of one measured run
_SGEMM_SHAPE = (512, 3072, 1024)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class DecoderBench:
    """What to run: `batch` sequences of `positions` each, decoded side by side."""

    synthetic: str
    positions: int
    batch: int
    prefill_rows: int
    runtime: RuntimeOptions
    rounds: int = 5
    instruction_set: str = "auto"

    @property
    def threads(self) -> int:
        """Worker threads."""
        return self.runtime.threads or default_threads()

    def ids(self, sequences: int, count: int) -> NDArray[np.int64]:
        """Random ids [sequences, count], the same each time."""
        vocab_size = SYNTHETIC[self.synthetic].decoder.vocab_size
        return np.random.default_rng(0).integers(0, vocab_size, (sequences, count))


class Peer(Protocol):
    """Another runtime that does the same work."""

    name: str

    def steps(self) -> object:
        """`STEPS` decode steps of every sequence, from `positions` on."""

    def prefill(self) -> object:
        """A prefill of `prefill_rows` from nothing."""


class _Steps:
    """Steps of sessions side by side, which are then cut back to where they were."""

    def __init__(self, decoder: Decoder, sessions: list[Session], ids: NDArray[np.int64]) -> None:
        self._decoder = decoder
        self._sessions = sessions
        self._ids = ids.astype(np.int32)
        self._nothing = np.zeros((0, decoder.spec.hidden_size), np.float32)

    def __call__(self) -> None:
        start, ids = self._sessions[0].length, self._ids
        rows = np.arange(len(self._sessions), dtype=np.int32)
        caches = [session.cache for session in self._sessions]
        for step in range(STEPS):
            positions = np.full(rows.size, start + step, np.int32)
            outputs = self._decoder.run(ids, positions, rows, caches, self._nothing, rows[:0], rows)
            ids = cast("NDArray[np.int32]", outputs["next"])
        for session in self._sessions:
            session.truncate(start)


class _Runs:
    """The pieces of work, and the op times of every round of steps.

    The clock is on the measured steps alone: its decoder has plans of its own, on the same weights.
    """

    def __init__(self, bench: DecoderBench, tracer: NoTracer, progress: Progress) -> None:
        self.bench = bench
        self.engine = open_engine(bench.threads, bench.instruction_set)
        self.read, self.sgemm = StreamingRead(self.engine), Sgemm(*_SGEMM_SHAPE)
        self.clock = OpClock(tracer)
        self.ops: list[dict[str, float]] = []
        progress(f"Making {bench.synthetic} with random weights in {bench.runtime.decoder_format}")
        weights = self._weights()
        self.decoder = self._make_decoder(weights, NO_TRACE)
        clocked = self._make_decoder(weights, self.clock)
        sessions = [self._filled(row, i, progress) for i, row in enumerate(self._histories())]
        first = bench.ids(1, bench.batch)[0]
        self.steps = _Steps(clocked, sessions, first)
        self.one = _Steps(self.decoder, sessions[:1], first[:1])
        self._prompt = self._checked(bench.ids(1, bench.prefill_rows)[0])

    def _weights(self) -> DecoderWeights:
        config = SYNTHETIC[self.bench.synthetic]
        packer = MatrixPacker(self.engine, self.bench.runtime.decoder_format)
        return load_weights(RandomTensors(config), config.decoder, packer)

    def _make_decoder(self, weights: DecoderWeights, tracer: NoTracer) -> Decoder:
        spec = SYNTHETIC[self.bench.synthetic].decoder
        make_executor = partial(NativeExecutor, engine=self.engine, tracer=tracer)
        return Decoder(spec, weights, make_executor, self.bench.runtime.kv)

    def _histories(self) -> NDArray[np.int64]:
        return self.bench.ids(self.bench.batch, self.bench.positions)

    def _checked(self, ids: NDArray[np.int64]) -> CheckedPrompt:
        return check_prompt(Prompt(ids.tolist()), 1, self.decoder.spec)

    def _filled(self, ids: NDArray[np.int64], number: int, progress: Progress) -> Session:
        """A session with pages of its own: clones would share them in the processor's caches."""
        session = self.decoder.new_session()
        for start in range(0, ids.size, 1024):
            progress(
                f"Sequence {number + 1} of {self.bench.batch}: {start} of {ids.size} positions"
            )
            session.prefill(self._checked(ids[start : start + 1024]))
        return session

    def prefill(self) -> None:
        """Read the prompt into an empty session."""
        self.decoder.new_session().prefill(self._prompt)

    def take_ops(self) -> None:
        """Keep the op times of a round."""
        self.ops.append(self.clock.take())


def run(
    bench: DecoderBench,
    make_peer: Callable[[DecoderBench], Peer] | None = None,
    tracer: NoTracer = NO_TRACE,
    progress: Progress = lambda text: None,
) -> dict[str, object]:
    """The figures: steps and prefill, each timed in turn with the machine's limits and the peer."""
    runs = _Runs(bench, tracer, progress)
    works: list[Callable[[], object]] = [runs.read, runs.steps, runs.sgemm, runs.prefill]
    peer = make_peer(bench) if make_peer else None
    if peer:
        progress(f"{peer.name} reads the same positions")
        works += [peer.steps, peer.prefill]
    if bench.batch > 1:
        works.append(runs.one)
    progress(f"{bench.rounds} rounds")
    columns = rounds_in_turn(works, bench.rounds, runs.take_ops)
    read_s, step_s, sgemm_s, prefill_s, *others_s = map(statistics.median, columns)
    result = {
        "bench": "decoder",
        "synthetic": bench.synthetic,
        "weights": bench.runtime.decoder_format,
        "threads": runs.engine.threads,
        "instruction_set": runs.engine.instruction_set,
        **_step_figures(runs, runs.read.gb_s(read_s), step_s / STEPS, columns[1]),
        **_prefill_figures(runs, runs.sgemm.gflops(sgemm_s), prefill_s),
    }
    if bench.batch > 1:
        result["speedup_over_one"] = round(bench.batch * others_s[-1] / step_s, 3)
    if peer:
        result["versus"] = {peer.name: _versus(bench, others_s, step_s, prefill_s)}
    return result


def _step_figures(
    runs: _Runs, read_gb_s: float, step_s: float, walls_s: tuple[float, ...]
) -> dict[str, object]:
    bench, rounds = runs.bench, runs.ops[1:]
    seen = bench.positions + STEPS // 2  # on average
    nbytes = step_bytes(runs.decoder, seen, bench.batch)
    attention = statistics.median(ops["cached_attention"] for ops in rounds) / STEPS
    cache = cache_bytes(runs.decoder, seen) * bench.batch
    outside = [1 - sum(ops.values()) / wall for ops, wall in zip(rounds, walls_s, strict=True)]
    return {
        "positions": bench.positions,
        "batch": bench.batch,
        "step_ms": round(step_s * 1e3, 3),
        "tokens_per_s": round(bench.batch / step_s, 2),
        "step_bytes": nbytes,
        "step_gflop": round(step_flops(runs.decoder.spec, seen, bench.batch) / 1e9, 3),
        "streaming_read_gb_s": round(read_gb_s, 2),
        "share_of_read": round(nbytes / step_s / 1e9 / read_gb_s, 3),
        "weights_share_of_read": round((nbytes - cache) / step_s / 1e9 / read_gb_s, 3),
        "attention_ms": round(attention * 1e3, 3),
        "attention_share_of_read": round(cache / attention / 1e9 / read_gb_s, 3),
        "outside_kernels_share": round(statistics.median(outside), 4),
    }


def _prefill_figures(runs: _Runs, sgemm_gflops: float, prefill_s: float) -> dict[str, object]:
    rows = runs.bench.prefill_rows
    flops = prefill_flops(runs.decoder.spec, rows)
    return {
        "prefill_rows": rows,
        "prefill_rows_per_s": round(rows / prefill_s, 1),
        "prefill_bytes": prefill_bytes(runs.decoder, rows),
        "prefill_gflop": round(flops / 1e9, 3),
        "sgemm_gflops": round(sgemm_gflops, 1),
        "share_of_sgemm": round(flops / prefill_s / 1e9 / sgemm_gflops, 3),
    }


def _versus(
    bench: DecoderBench, others_s: list[float], step_s: float, prefill_s: float
) -> dict[str, float]:
    """The peer's figures, and how many times as long it took."""
    theirs, their_prefill = others_s[:2]
    return {
        "tokens_per_s": round(bench.batch * STEPS / theirs, 2),
        "ratio": round(theirs / step_s, 3),
        "prefill_rows_per_s": round(bench.prefill_rows / their_prefill, 1),
        "prefill_ratio": round(their_prefill / prefill_s, 3),
    }
