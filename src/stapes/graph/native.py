"""The executor for people: one call into the native core for each run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import cast

from stapes import _native
from stapes.graph.executor import Array, KvCacheLike, checked_inputs, output_array
from stapes.graph.plan import Op, Plan, View
from stapes.graph.trace import NO_TRACE, NoTracer
from stapes.options import ActivationBits

Engine = _native.Engine
stream_sum = _native.stream_sum
instruction_sets = _native.instruction_sets


class NativeExecutor:
    """Runs a plan in the native core.

    Args:
        plan: what to run; its weights are used in place.
        engine: threads and kernels; may be shared by many executors, which then take turns.
        tracer: records the runs.
        activation_bits: to which activations are rounded beside q8 weights, 13 or 9. With 9, the
            kernels for AVX-512 multiply bytes, 1.3 times as fast; the others gain nothing.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        tracer: NoTracer = NO_TRACE,
        activation_bits: ActivationBits = 13,
    ) -> None:
        self.plan = plan
        self._tracer = tracer
        self._engine = engine
        self._native = _native.Plan(
            list(plan.dims),
            [
                (b.name, b.element, plan.dims.index(b.dim), b.row_elements, plan.slots[b.index])
                for b in plan.buffers
            ],
            [_op_tuple(op) for op in plan.ops],
            [
                _native.Matrix(m.format, m.out_features, m.in_features, m.data)
                for m in plan.matrices
            ],
            list(plan.vectors),
            activation_bits,
        )
        named = {view.buffer.index: name for name, view in (plan.inputs | plan.outputs).items()}
        self._external = [named[index] for index in sorted(named)]

    def run(
        self, inputs: Mapping[str, Array], caches: Sequence[KvCacheLike] = ()
    ) -> dict[str, Array]:
        """See `Executor.run`."""
        arrays, counts = checked_inputs(self.plan, inputs)
        outputs = {name: output_array(view, counts) for name, view in self.plan.outputs.items()}
        given = arrays | outputs
        ends_ns = self._tracer.op_times(self.plan)
        start_ns = time.perf_counter_ns()
        self._native.run(
            self._engine,
            [counts[dim] for dim in self.plan.dims],
            [given[name] for name in self._external],
            cast("Sequence[_native.KvCache]", caches),
            ends_ns,
        )
        if ends_ns is not None:
            self._tracer.plan_run(self.plan, counts, start_ns, ends_ns)
        return outputs

    def new_cache(self, layers: int, kv_heads: int, head_dim: int, type: str) -> KvCacheLike:
        """See `Executor.new_cache`."""
        return _native.KvCache(layers, kv_heads, head_dim, type)


def _view_tuple(view: View) -> tuple[int, int, int, int, int]:
    return view.buffer.index, view.per_row, view.stride, view.start, view.width


def _op_tuple(op: Op) -> _native.OpTuple:
    return (
        op.kind,
        [_view_tuple(view) for view in op.inputs],
        _view_tuple(op.output),
        list(op.matrices),
        list(op.vectors),
        list(op.ints),
        list(op.floats),
    )
