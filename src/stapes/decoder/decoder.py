"""A decoder ready to run: a spec, its weights, and executors of its plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.network import RANGE_INPUTS, Want, build_plan
from stapes.decoder.session import Session
from stapes.decoder.spec import DecoderSpec
from stapes.decoder.weights import DecoderWeights
from stapes.graph import NO_TRACE, Array, Executor, KvCacheLike, NoTracer, Plan
from stapes.options import KvFormat


class Decoder:
    """Runs rows of any number of sequences; holds no state of its own between runs.

    May be shared by threads: native runs take turns in their engine. A plan is built when it is
    first needed: weights that are not of the spec's shapes are a ValueError then.

    Args:
        spec, weights: what to run.
        make_executor: makes an executor for a plan, such as `NativeExecutor` on an engine.
        kv: storage format of the caches.
        memory_limit_bytes: most that one session's cache may take; None: what the machine has left.
        tracer: records the prefill and the decode of every answer.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        weights: DecoderWeights,
        make_executor: Callable[[Plan], Executor],
        kv: KvFormat = "f16",
        memory_limit_bytes: int | None = None,
        tracer: NoTracer = NO_TRACE,
    ) -> None:
        self.spec = spec
        self.weights = weights
        self.kv = kv
        self.tracer = tracer
        self.memory_limit_bytes = memory_limit_bytes
        self._make_executor = make_executor

    @cached_property
    def _next(self) -> Executor:
        return self._make_executor(build_plan(self.spec, self.weights, "next"))

    @cached_property
    def _logits(self) -> Executor:
        return self._make_executor(build_plan(self.spec, self.weights, "logits"))

    @cached_property
    def _restricted_next(self) -> Executor:
        return self._make_executor(build_plan(self.spec, self.weights, "next", restricted=True))

    @cached_property
    def _restricted_logits(self) -> Executor:
        return self._make_executor(build_plan(self.spec, self.weights, "logits", restricted=True))

    def new_session(self) -> Session:
        """A session for one sequence, with an empty cache."""
        return Session(self, self.new_cache())

    def new_cache(self) -> KvCacheLike:
        """An empty cache of this decoder's shape."""
        spec = self.spec
        return self._next.new_cache(
            spec.num_hidden_layers, spec.num_key_value_heads, spec.head_dim, self.kv
        )

    def run(
        self,
        ids: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequences: NDArray[np.int32],
        caches: Sequence[KvCacheLike],
        values: NDArray[np.float32],
        index: NDArray[np.int32],
        picked: NDArray[np.int32],
        want: Want = "next",
        ranges: NDArray[np.int32] | None = None,
    ) -> dict[str, Array]:
        """One run of the plan, of n rows; `generate` and `Batch` are what to use instead.

        Args:
            ids: [n] i32.
            positions: [n] i32, where each row is stored; it reads what lies before it.
            sequences: [n] i32, in which of the caches.
            caches: of this decoder; changed in place.
            values: [m, hidden_size] f32, in place of the embeddings of some rows.
            index: [m] i32, which rows these are.
            picked: [p] i32, the rows whose results are wanted.
            want: "next", or "logits" for these beside it.
            ranges: [k, 3] i32, ascending: an index into picked, and a start and an end of ids that
                this row may be followed by; a row of picked without a range may be by any. Logits
                of all other ids are -inf.

        Returns:
            next: [p] i32, the first maximum, -1 for a NaN; logits: [p, logits_size] f32.

        Raises:
            ValueError, IndexError: an array does not fit. The caches are as they were.
        """
        inputs: dict[str, Array] = {
            "ids": ids,
            "sequences": sequences,
            "positions": positions,
            "values": values,
            "index": index,
            "picked": picked,
        }
        if ranges is None:
            return (self._next if want == "next" else self._logits).run(inputs, caches)
        inputs |= {name: ranges[:, i] for i, name in enumerate(RANGE_INPUTS)}
        executor = self._restricted_next if want == "next" else self._restricted_logits
        return executor.run(inputs, caches)
