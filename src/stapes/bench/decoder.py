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
from stapes.bench.synthetic import SAMPLING, activation_bits, decoder_spec, synthetic_tensors
from stapes.bench.work import cache_bytes, prefill_bytes, prefill_flops, step_bytes, step_flops
from stapes.decoder import (
    Batch,
    Decoder,
    DecoderWeights,
    GenerateOptions,
    Prompt,
    Session,
    load_weights,
)
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
        vocab_size = decoder_spec(self.synthetic).vocab_size
        return np.random.default_rng(0).integers(0, vocab_size, (sequences, count))


class Peer(Protocol):
    """Another runtime that does the same work."""

    name: str

    def steps(self) -> object:
        """`STEPS` decode steps of every sequence, from `positions` on."""

    def prefill(self) -> object:
        """A prefill of `prefill_rows` from nothing."""

    def sampled(self) -> object:
        """`STEPS` ids drawn for every sequence, from `positions` on."""


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


class _Sampled:
    """Ids drawn behind the same histories, as a model's users have them drawn."""

    def __init__(self, sessions: list[Session], histories: NDArray[np.int64], name: str) -> None:
        self._sessions = sessions
        self._prompts = [Prompt(ids.tolist()) for ids in histories]
        self._options = GenerateOptions(STEPS, sampling=SAMPLING[name])

    def __call__(self) -> list[tuple[int, ...]]:
        batch = Batch(self._sessions[0].decoder)
        joined = [
            batch.join(session, prompt, self._options)
            for session, prompt in zip(self._sessions, self._prompts, strict=True)
        ]
        batch.run()
        for session, prompt in zip(self._sessions, self._prompts, strict=True):
            session.truncate(len(prompt) - 1)
        return [generation.result().token_ids for generation in joined]


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
        whole = np.concatenate([self._histories(), first[:, None]], axis=1)
        drawn = bench.synthetic in SAMPLING
        self.sampled = _Sampled(sessions, whole, bench.synthetic) if drawn else None
        self._prompt = self._checked(bench.ids(1, bench.prefill_rows)[0])

    def _weights(self) -> DecoderWeights:
        packer = MatrixPacker(self.engine, self.bench.runtime.decoder_format)
        name = self.bench.synthetic
        return load_weights(synthetic_tensors(name), decoder_spec(name), packer)

    def _make_decoder(self, weights: DecoderWeights, tracer: NoTracer) -> Decoder:
        spec = decoder_spec(self.bench.synthetic)
        bits = activation_bits(self.bench.synthetic, self.bench.runtime)
        make_executor = partial(
            NativeExecutor, engine=self.engine, tracer=tracer, activation_bits=bits
        )
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
    works: dict[str, Callable[[], object]] = {
        "read": runs.read,
        "steps": runs.steps,
        "sgemm": runs.sgemm,
        "prefill": runs.prefill,
    }
    peer = make_peer(bench) if make_peer else None
    if runs.sampled:
        works["sampled"] = runs.sampled
    if peer:
        progress(f"{peer.name} reads the same positions")
        works |= {"their steps": peer.steps, "their prefill": peer.prefill}
    if peer and runs.sampled:
        works["their sampled"] = peer.sampled
    if bench.batch > 1:
        works["one"] = runs.one
    progress(f"{bench.rounds} rounds")
    columns = rounds_in_turn(list(works.values()), bench.rounds, runs.take_ops)
    seconds = dict(zip(works, map(statistics.median, columns), strict=True))
    result = {
        "bench": "decoder",
        "synthetic": bench.synthetic,
        "weights": bench.runtime.decoder_format,
        "activation_bits": activation_bits(bench.synthetic, bench.runtime),
        "threads": runs.engine.threads,
        "instruction_set": runs.engine.instruction_set,
        **_step_figures(
            runs, runs.read.gb_s(seconds["read"]), seconds["steps"] / STEPS, columns[1]
        ),
        **_prefill_figures(runs, runs.sgemm.gflops(seconds["sgemm"]), seconds["prefill"]),
    }
    if runs.sampled:
        result["sampled_tokens_per_s"] = round(bench.batch * STEPS / seconds["sampled"], 2)
    if bench.batch > 1:
        result["speedup_over_one"] = round(bench.batch * seconds["one"] / seconds["steps"], 3)
    if peer:
        result["versus"] = {peer.name: _versus(bench, seconds)}
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


def _versus(bench: DecoderBench, seconds: dict[str, float]) -> dict[str, float]:
    """The peer's figures, and how many times as long it took."""
    count = bench.batch * STEPS
    works = {
        "steps": ("tokens_per_s", "ratio", count, 2),
        "prefill": ("prefill_rows_per_s", "prefill_ratio", bench.prefill_rows, 1),
        "sampled": ("sampled_tokens_per_s", "sampled_ratio", count, 2),
    }
    result: dict[str, float] = {}
    for work, (speed, ratio, units, digits) in works.items():
        if work in seconds:
            theirs = seconds[f"their {work}"]
            result[speed] = round(units / theirs, digits)
            result[ratio] = round(theirs / seconds[work], 3)
    return result
