"""Plans with random damage: they are refused or they run, and the process lives."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.cases import CASES
from stapes import _native
from stapes.graph import Plan
from stapes.graph.ops import OPS

REFUSALS = (ValueError, TypeError, IndexError, MemoryError)
ENGINE = _native.Engine(2)

#: One small case of each kind.
SAMPLES = [next(case for case in reversed(CASES) if case.kind == kind) for kind in OPS]
NUMBERS = st.one_of(
    st.integers(-2, 40),
    st.sampled_from([255, 257, 2**16, 2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**63, 2**64, -(2**63)]),
)


def as_lists(plan: Plan) -> dict[str, list[Any]]:
    """What the native plan is built from, as nested lists that can be changed."""

    def view(v: Any) -> list[int]:
        return [v.buffer.index, v.per_row, v.stride, v.start, v.width]

    return {
        "buffers": [
            [b.name, b.element, plan.dims.index(b.dim), b.row_elements, plan.slots[b.index]]
            for b in plan.buffers
        ],
        "ops": [
            [
                op.kind,
                [view(v) for v in op.inputs],
                view(op.output),
                list(op.matrices),
                list(op.vectors),
                list(op.ints),
                list(op.floats),
            ]
            for op in plan.ops
        ],
    }


def leaves(tree: list[Any]) -> list[tuple[list[Any], int]]:
    """Every number in nested lists, as the list that holds it and its place there."""
    found = []
    for i, item in enumerate(tree):
        if isinstance(item, list):
            found += leaves(item)
        elif not isinstance(item, str):
            found.append((tree, i))
    return found


def tuples(items: list[Any]) -> list[Any]:
    """The nested lists in the shape that the binding takes."""
    ops = []
    for kind, inputs, output, *rest in items:
        ops.append((kind, [tuple(v) for v in inputs], tuple(output), *rest))
    return ops


@settings(max_examples=400)
@given(data=st.data())
def test_a_damaged_plan_is_refused_or_runs(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(SAMPLES))
    plan = case.plan()
    parts = as_lists(plan)
    for holder, place in data.draw(
        st.lists(st.sampled_from(leaves([parts["ops"], parts["buffers"]])), max_size=3)
    ):
        holder[place] = data.draw(NUMBERS)
    if data.draw(st.booleans()):
        parts["ops"][0][0] = data.draw(st.sampled_from(list(OPS)))
    try:
        native = _native.Plan(
            list(plan.dims),
            [tuple(b) for b in parts["buffers"]],
            tuples(parts["ops"]),
            [
                _native.Matrix(m.format, m.out_features, m.in_features, m.data)
                for m in plan.matrices
            ],
            list(plan.vectors),
        )
        run(native, parts["buffers"], data)
    except REFUSALS:
        return


def run(native: _native.Plan, buffers: list[Any], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 12))
    counts = [count, data.draw(st.integers(0, 5))][: 1 + max(b[2] for b in buffers)]
    arrays: list[Any] = []
    for _, element, dim, row_elements, slot in buffers:
        size = counts[dim] * row_elements
        if slot >= 0:
            continue
        if size > 10**6:
            return
        if element == "f32":
            arrays.append(np.zeros(size, np.float32))
        else:
            numbers = st.lists(st.integers(-1, 8), min_size=size, max_size=size)
            arrays.append(np.array(data.draw(numbers), np.int32))
    cache = _native.KvCache(2, 1, data.draw(st.integers(1, 130)), "f16")
    native.run(ENGINE, counts, arrays, [cache])


def test_undamaged_samples_run() -> None:
    """The fuzz above starts from plans that work."""
    for case in SAMPLES:
        plan = case.plan()
        parts = as_lists(plan)
        native = _native.Plan(
            list(plan.dims),
            [tuple(b) for b in parts["buffers"]],
            tuples(parts["ops"]),
            [
                _native.Matrix(m.format, m.out_features, m.in_features, m.data)
                for m in plan.matrices
            ],
            list(plan.vectors),
        )
        inputs = case.inputs(case.rows[-1], np.random.default_rng(0))
        counts = {
            v.buffer.dim: inputs[n].size // v.buffer.row_elements for n, v in plan.inputs.items()
        }
        y = plan.outputs["y"].buffer
        out = np.zeros(
            counts[y.dim] * y.row_elements, np.int32 if y.element == "i32" else np.float32
        )
        caches = [_native.KvCache(*case.cache)] if case.cache else []
        native.run(ENGINE, list(counts.values()), [*inputs.values(), out], caches)
        assert out.any()
