"""Where the time goes: stages, plan runs and single ops, as a Chrome trace.

The file opens in chrome://tracing and ui.perfetto.dev. A model takes a `Tracer`; `NO_TRACE`, the
default, records nothing and costs nothing.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.graph.plan import Plan

_STAGES, _RUNS, _OPS = 1, 2, 3  # rows of the picture
_ROW_NAMES = {_STAGES: "stages", _RUNS: "plan runs", _OPS: "ops"}


class NoTracer:
    """Records nothing."""

    def stage(self, name: str, start_s: float, end_s: float) -> None:
        """A span of work, such as the encoding of a piece, in time.perf_counter's seconds."""

    def op_times(self, plan: Plan) -> NDArray[np.int64] | None:
        """Room for the end times of a run's ops, or None when they are not wanted."""
        return None

    def plan_run(
        self, plan: Plan, counts: dict[str, int], start_ns: int, ends_ns: NDArray[np.int64]
    ) -> None:
        """A run of a plan, with the end times that the core filled in."""


NO_TRACE = NoTracer()


class Tracer(NoTracer):
    """Records everything; not for use by several threads at once.

    Times are nanoseconds of the monotonic clock, which Python and the core share.
    """

    def __init__(self) -> None:
        self._start_ns = time.perf_counter_ns()
        self._events: list[dict[str, Any]] = []

    def stage(self, name: str, start_s: float, end_s: float) -> None:
        """See `NoTracer.stage`."""
        self._add(_STAGES, name, int(start_s * 1e9), int(end_s * 1e9))

    def op_times(self, plan: Plan) -> NDArray[np.int64] | None:
        """See `NoTracer.op_times`."""
        return np.zeros(len(plan.ops), np.int64)

    def plan_run(
        self, plan: Plan, counts: dict[str, int], start_ns: int, ends_ns: NDArray[np.int64]
    ) -> None:
        """See `NoTracer.plan_run`."""
        self._add(_RUNS, " ".join(sorted(plan.outputs)), start_ns, time.perf_counter_ns(), counts)
        for op, end_ns in zip(plan.ops, ends_ns.tolist(), strict=True):
            matrices = [plan.matrices[i] for i in op.matrices]
            shapes = {f"{m.out_features}x{m.in_features}": m.format for m in matrices}
            self._add(_OPS, op.kind, start_ns, end_ns, shapes)
            start_ns = end_ns

    def _add(
        self, row: int, name: str, start_ns: int, end_ns: int, args: dict[str, Any] | None = None
    ) -> None:
        event = {"name": name, "ph": "X", "pid": 0, "tid": row}
        event["ts"] = (start_ns - self._start_ns) / 1000
        event["dur"] = (end_ns - start_ns) / 1000
        self._events.append(event | ({"args": args} if args else {}))

    def seconds_by_op(self) -> dict[str, float]:
        """Seconds of every kind of op, over all runs so far."""
        seconds: dict[str, float] = {}
        for event in self._events:
            if event["tid"] == _OPS:
                seconds[event["name"]] = seconds.get(event["name"], 0.0) + event["dur"] / 1e6
        return seconds

    def to_json(self) -> str:
        """The record as JSON; `ts` and `dur` are microseconds, as the format demands."""
        names = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": row, "args": {"name": name}}
            for row, name in _ROW_NAMES.items()
        ]
        return json.dumps({"traceEvents": names + self._events})
