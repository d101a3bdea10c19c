"""Seconds of every kind of op, kept so cheaply that timed runs may be clocked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stapes.graph import NO_TRACE, NoTracer, Plan


class OpClock(NoTracer):
    """Keeps the end times of ops as the core wrote them; sums are made when they are asked for.

    Args:
        tracer: gets everything too, at its own cost.
    """

    def __init__(self, tracer: NoTracer = NO_TRACE) -> None:
        self._tracer = tracer
        self._runs: list[tuple[Plan, int, NDArray[np.int64]]] = []

    def stage(self, name: str, start_s: float, end_s: float) -> None:
        """See `NoTracer.stage`."""
        self._tracer.stage(name, start_s, end_s)

    def op_times(self, plan: Plan) -> NDArray[np.int64] | None:
        """See `NoTracer.op_times`."""
        return np.empty(len(plan.ops), np.int64)

    def plan_run(
        self, plan: Plan, counts: dict[str, int], start_ns: int, ends_ns: NDArray[np.int64]
    ) -> None:
        """See `NoTracer.plan_run`."""
        self._runs.append((plan, start_ns, ends_ns))
        self._tracer.plan_run(plan, counts, start_ns, ends_ns)

    def take(self) -> dict[str, float]:
        """Seconds of every kind of op since the last call."""
        seconds: dict[str, float] = {}
        for plan, start_ns, ends_ns in self._runs:
            spans = np.diff(ends_ns, prepend=start_ns) / 1e9
            for op, span in zip(plan.ops, spans.tolist(), strict=True):
                seconds[op.kind] = seconds.get(op.kind, 0.0) + span
        self._runs.clear()
        return seconds
