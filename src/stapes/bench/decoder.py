"""`stapes bench decoder`: decode steps and prefill of a full-size synthetic decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from stapes.bench.measure import Sgemm, StreamingRead, in_turn, seconds_of
from stapes.bench.synthetic import SYNTHETIC, RandomTensors
from stapes.decoder import Decoder, Prompt, Session, load_weights
from stapes.decoder.prompt import check_prompt
from stapes.graph import Engine, NativeExecutor, Tracer
from stapes.options import RuntimeOptions
from stapes.system import default_threads
from stapes.weights import MatrixPacker

_SGEMM_SHAPE = (512, 3072, 1024)
_STEPS = 8  # decode steps of one measured run


@dataclass(frozen=True)
class DecoderBench:
    """What to run: `batch` sequences of `positions` each, decoded side by side."""

    synthetic: str
    positions: int
    batch: int
    prefill_rows: int
    runtime: RuntimeOptions
    rounds: int = 5


class _Sequences:
    """Sessions filled to so many positions, and steps of all of them in one run."""

    def __init__(self, decoder: Decoder, bench: DecoderBench) -> None:
        self._decoder = decoder
        self._positions = bench.positions
        rng = np.random.default_rng(0)
        ids = rng.integers(0, decoder.spec.vocab_size, bench.positions).tolist()
        first = decoder.new_session()
        first.prefill(check_prompt(Prompt(ids), 1, decoder.spec))
        self.sessions = [first] + [first.clone() for _ in range(bench.batch - 1)]
        self._ids = rng.integers(0, decoder.spec.vocab_size, bench.batch).astype(np.int32)

    def steps(self) -> None:
        """Decode `_STEPS` tokens of every sequence, then forget them."""
        ids, count = self._ids, len(self.sessions)
        rows = np.arange(count, dtype=np.int32)
        nothing = np.zeros((0, self._decoder.spec.hidden_size), np.float32)
        for step in range(_STEPS):
            positions = np.full(count, self._positions + step, np.int32)
            caches = [session._cache for session in self.sessions]
            ids = cast(
                "np.ndarray[tuple[int], np.dtype[np.int32]]",
                self._decoder.run(ids, positions, rows, caches, nothing, rows[:0], rows),
            )
        for session in self.sessions:
            session.truncate(self._positions)


def run(bench: DecoderBench) -> dict[str, object]:
    """The figures: steps and prefill, each timed in turn with the machine's limits."""
    engine = Engine(bench.runtime.threads or default_threads())
    tracer = Tracer()
    decoder = _build(bench, engine, tracer)
    sequences = _Sequences(decoder, bench)
    read, sgemm = StreamingRead(engine), Sgemm(*_SGEMM_SHAPE)
    rows = bench.prefill_rows
    prefill = _prefill(decoder, rows)
    read_s, steps_s, sgemm_s, prefill_s = in_turn(
        [read, sequences.steps, sgemm, prefill], bench.rounds
    )
    step_s = steps_s / _STEPS
    step_bytes = _step_bytes(decoder, sequences.sessions[0], bench)
    return {
        "bench": "decoder",
        "synthetic": bench.synthetic,
        "weights": bench.runtime.weights,
        "threads": engine.threads,
        "positions": bench.positions,
        "batch": bench.batch,
        "step_ms": round(step_s * 1e3, 3),
        "tokens_per_s": round(bench.batch / step_s, 2),
        "share_of_read": round(step_bytes / step_s / 1e9 / read.gb_s(read_s), 3),
        "outside_kernels_share": round(_outside_share(tracer, sequences.steps), 4),
        "prefill_rows": rows,
        "prefill_rows_per_s": round(rows / prefill_s, 1),
        "share_of_sgemm": round(
            _prefill_flops(decoder, rows) / prefill_s / 1e9 / sgemm.gflops(sgemm_s), 3
        ),
    }


def _build(bench: DecoderBench, engine: Engine, tracer: Tracer) -> Decoder:
    config = SYNTHETIC[bench.synthetic]
    packer = MatrixPacker(engine, bench.runtime.weights)
    weights = load_weights(RandomTensors(config), config.decoder, packer)
    make_executor = partial(NativeExecutor, engine=engine, tracer=tracer)
    return Decoder(config.decoder, weights, make_executor, bench.runtime.kv)


def _prefill(decoder: Decoder, rows: int) -> Callable[[], object]:
    rng = np.random.default_rng(2)
    ids = rng.integers(0, decoder.spec.vocab_size, rows).tolist()
    prompt = check_prompt(Prompt(ids), 1, decoder.spec)
    return lambda: decoder.new_session().prefill(prompt)


def _step_bytes(decoder: Decoder, session: Session, bench: DecoderBench) -> int:
    """Bytes that one step must read: all weights but the embedding's other rows, and the cache."""
    weights = decoder.weights
    untied = weights.embedding.nbytes if weights.head is not weights.embedding else 0
    cache = session._cache.page_bytes // 512 * bench.positions * bench.batch
    return weights.nbytes - untied + cache


def _prefill_flops(decoder: Decoder, rows: int) -> float:
    """Two for each weight and row; the last layer's output, MLP and the head for one row only."""
    spec, layers = decoder.spec, decoder.weights.layers
    size = [
        sum(m.out_features * m.in_features for m in (w.qkv, w.o, w.gate_up, w.down)) for w in layers
    ]
    last = layers[-1].qkv
    matrices = sum(size[:-1]) + last.out_features * last.in_features
    attention = 2 * spec.num_hidden_layers * spec.q_size * (rows + 1) / 2
    return 2.0 * rows * (matrices + attention)


def _outside_share(tracer: Tracer, steps: Callable[[], object]) -> float:
    """Share of a step's wall time that lies outside the ops of its plan."""
    before = sum(tracer.seconds_by_op().values())
    wall = seconds_of(steps)
    return 1 - (sum(tracer.seconds_by_op().values()) - before) / wall
