"""The builder: memory is shared only where nothing live is lost, and mistakes are told at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.cases import matrix, normal
from graph.decoder import decoder_plan
from stapes import _native
from stapes.graph import GraphBuilder, NativeExecutor, Plan, ReferenceExecutor, View

WIDTH = 6
WEIGHTS = matrix(WIDTH, WIDTH, "f32")

#: Ways to make a view of the same width from older ones.
STEPS: dict[str, Callable[[GraphBuilder, View, View], View]] = {
    "linear": lambda g, a, b: g.linear(a, WEIGHTS),
    "add": lambda g, a, b: g.add(a, b),
    "gate": lambda g, a, b: g.silu_gate(a, b),
    "norm": lambda g, a, b: g.rms_norm(a, np.ones(WIDTH, np.float32), 1e-6),
    "rows_of": lambda g, a, b: g.gelu(a.rows_of(2)).rows_of(WIDTH),
    "split": lambda g, a, b: g.add(g.linear(a, WIDE).split(WIDTH, WIDTH)[1], b),
}
WIDE = matrix(2 * WIDTH, WIDTH, "f32")

#: A random graph: each step's kind, and how far back its two operands lie.
graphs = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 30), st.integers(0, 30)),
    min_size=1,
    max_size=30,
)


def random_plan(steps: list[tuple[str, int, int]], outputs: list[int]) -> Plan:
    g = GraphBuilder("rows")
    views = [g.input("x", "rows", WIDTH)]
    for kind, i, j in steps:
        views.append(STEPS[kind](g, views[i % len(views)], views[j % len(views)]))
    for name, i in enumerate({1 + i % len(steps) for i in outputs}):
        g.output(f"y{name}", views[i])
    return g.build()


def without_reuse(plan: Plan) -> Plan:
    """The same plan, with memory of its own for every buffer."""
    return replace(plan, slots=tuple(i if s >= 0 else -1 for i, s in enumerate(plan.slots)))


@settings(max_examples=150)
@given(steps=graphs, outputs=st.lists(st.integers(0, 30), min_size=1, max_size=3))
def test_sharing_memory_never_changes_a_result(
    steps: list[tuple[str, int, int]], outputs: list[int]
) -> None:
    plan, engine = random_plan(steps, outputs), _native.Engine(1)
    x = normal(5, WIDTH)
    shared = NativeExecutor(plan, engine).run({"x": x})
    own = NativeExecutor(without_reuse(plan), engine).run({"x": x})
    reference = ReferenceExecutor(plan).run({"x": x})
    for name in plan.outputs:
        np.testing.assert_array_equal(shared[name], own[name])
        scale = np.abs(reference[name]).max() + 1
        assert np.abs(shared[name] - reference[name]).max() <= 1e-4 * scale


@settings(max_examples=60)
@given(steps=graphs, outputs=st.lists(st.integers(0, 30), min_size=1, max_size=3))
def test_a_slot_is_given_away_only_after_its_last_reader(
    steps: list[tuple[str, int, int]], outputs: list[int]
) -> None:
    plan = random_plan(steps, outputs)
    holder: dict[int, int] = {}
    for op in plan.ops:
        for view in op.inputs:
            slot = plan.slots[view.buffer.index]
            assert slot < 0 or holder[slot] == view.buffer.index
        slot = plan.slots[op.output.buffer.index]
        assert slot < 0 or slot not in {plan.slots[v.buffer.index] for v in op.inputs}
        holder[slot] = op.output.buffer.index


@pytest.mark.parametrize(("rows", "picked"), [(2, 9), (9, 2)])
def test_dimensions_share_slots_and_a_slot_has_room_for_either(rows: int, picked: int) -> None:
    g = GraphBuilder("rows", "picked")
    x = g.gelu(g.gelu(g.input("x", "rows", 8)))
    y = g.gelu(g.gelu(g.take_rows(x, g.index_input("index", "picked"))))
    g.output("y", g.gelu(y))
    plan = g.build()
    assert len({slot for slot in plan.slots if slot >= 0}) == 2
    index = np.arange(picked, dtype=np.int32) % rows
    inputs = {"x": normal(rows, 8), "index": index}
    native = NativeExecutor(plan, _native.Engine(1)).run(inputs)["y"]
    np.testing.assert_allclose(native, ReferenceExecutor(plan).run(inputs)["y"], atol=1e-6)


def test_a_chain_needs_two_slots_of_a_size() -> None:
    g = GraphBuilder("rows")
    x = g.input("x", "rows", 8)
    for _ in range(20):
        x = g.gelu(x)
    g.output("y", g.gelu(x))
    assert len({slot for slot in g.build().slots if slot >= 0}) == 2


def test_memory_does_not_grow_with_layers() -> None:
    plan = decoder_plan("f32")
    assert max(plan.slots) + 1 < len([slot for slot in plan.slots if slot >= 0]) / 2


def test_inputs_and_outputs_have_the_callers_memory() -> None:
    g = GraphBuilder("rows")
    x = g.input("x", "rows", 8)
    middle = g.gelu(x)
    g.output("middle", middle)
    g.output("y", g.add(middle, g.gelu(middle)))
    plan = g.build()
    assert plan.slots == (-1, -1, 0, -1)
    x = normal(4, 8)
    out = NativeExecutor(plan, _native.Engine(1)).run({"x": x})
    assert set(out) == {"middle", "y"}
    expected = ReferenceExecutor(plan).run({"x": x})
    np.testing.assert_allclose(out["middle"], expected["middle"], atol=3e-6)
    np.testing.assert_allclose(out["y"], expected["y"], atol=6e-6)


# -- views -----------------------------------------------------------------------------------------


def view(width: int = 12) -> View:
    return GraphBuilder("rows").input("x", "rows", width)


def test_columns_and_split_name_parts_of_every_row() -> None:
    a, b, c = view().split(2, 4, 6)
    assert [(v.start, v.width, v.stride) for v in (a, b, c)] == [(0, 2, 12), (2, 4, 12), (6, 6, 12)]
    inner = c.columns(1, 3)
    assert (inner.start, inner.width, inner.stride) == (7, 3, 12)


def test_rows_of_reads_the_same_memory_as_narrower_rows() -> None:
    narrow = view().rows_of(4)
    assert (narrow.per_row, narrow.stride, narrow.width) == (3, 4, 4)
    assert narrow.rows_of(12) == view()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda v: v.columns(-1, 3),
        lambda v: v.columns(0, 0),
        lambda v: v.columns(10, 3),
        lambda v: v.columns(2, 4).columns(2, 3),
        lambda v: v.split(6, 5),
        lambda v: v.split(6, 6, 0),
        lambda v: v.split(14, -2),
        lambda v: v.split(),
        lambda v: v.rows_of(5),
        lambda v: v.rows_of(0),
        lambda v: v.rows_of(-4),
        lambda v: v.columns(0, 6).rows_of(3),
        lambda v: v.columns(6, 6).rows_of(6),
    ],
)
def test_a_part_that_is_not_there_is_refused(wrong: Callable[[View], View]) -> None:
    with pytest.raises(ValueError, match=r"view|widths"):
        wrong(view())


# -- shapes ----------------------------------------------------------------------------------------

ONES = np.ones(8, np.float32)


def wide(g: GraphBuilder, width: int = 8) -> View:
    return g.input(f"x{width}", "rows", width)


def where(g: GraphBuilder) -> list[View]:
    return [g.index_input("sequences", "rows"), g.index_input("positions", "rows")]


MISFITS: dict[str, Callable[[GraphBuilder], View]] = {
    "linear": lambda g: g.linear(wide(g), matrix(4, 9, "q8")),
    "bias": lambda g: g.linear(wide(g), matrix(4, 8, "f32"), bias=ONES),
    "norm": lambda g: g.rms_norm(wide(g), ONES[:7], 1e-6),
    "groups": lambda g: g.rms_norm(wide(g), ONES[:3], 1e-6, groups=3),
    "layer_norm": lambda g: g.layer_norm(wide(g), ONES, ONES[:7], 1e-6),
    "gate": lambda g: g.silu_gate(wide(g), wide(g, 9)),
    "add": lambda g: g.add(wide(g), wide(g, 9)),
    "add of other rows": lambda g: g.add(wide(g), wide(g, 16).rows_of(8)),
    "add of another dimension": lambda g: g.add(wide(g), g.input("o", "others", 8)),
    "add_periodic": lambda g: g.add_periodic(wide(g), ONES[:7]),
    "rope": lambda g: g.rope(wide(g), g.rope_angles(where(g)[0], ONES[:3])),
    "embedding ids": lambda g: g.embed(wide(g, 1), matrix(4, 8, "f32")),
    "argmax as a number": lambda g: g.add(wide(g, 1), g.argmax(wide(g))),
    "take_rows": lambda g: g.take_rows(wide(g), wide(g, 1)),
    "keep_columns": lambda g: g.keep_columns(wide(g), *where(g), wide(g, 1)),
    "set_rows": lambda g: g.set_rows(wide(g), g.input("o", "others", 8), where(g)[0]),
    "conv2d": lambda g: g.conv2d(wide(g, 8).rows_of(2), 2, 3, matrix(4, 18, "f32"), ONES[:4]),
    "conv2d matrix": lambda g: g.conv2d(wide(g).rows_of(2), 2, 2, matrix(4, 8, "f32"), ONES[:4]),
    "depthwise_conv taps": lambda g: g.depthwise_conv(wide(g), np.ones(16, "f4"), ONES, *where(g)),
    "depthwise_conv width": lambda g: g.depthwise_conv(wide(g), np.ones(20, "f4"), ONES, *where(g)),
    "depthwise_conv bias": lambda g: g.depthwise_conv(wide(g), ONES, ONES[:7], *where(g)),
    "scales": lambda g: g.adaptive_rms_norm(wide(g), g.input("o", "others", 7), where(g)[0], 1e-6),
    "heads": lambda g: g.cached_attention(
        *wide(g, 24).split(8, 8, 8), *where(g), layer=0, heads=3, kv_heads=2, head_dim=4
    ),
    "head_dim": lambda g: g.window_attention(
        *wide(g, 24).split(8, 8, 8), *where(g), heads=2, head_dim=3
    ),
}


@pytest.mark.parametrize("build", MISFITS.values(), ids=MISFITS)
def test_operands_that_do_not_fit_are_refused(build: Callable[[GraphBuilder], View]) -> None:
    g = GraphBuilder("rows", "others")
    g.output("y", build(g))
    g.input("count", "others", 1)
    with pytest.raises(ValueError, match=r"^\w+: "):
        NativeExecutor(g.build(), _native.Engine(1))


# -- names, dimensions and runs --------------------------------------------------------------------


def test_a_part_or_an_input_is_no_output() -> None:
    g = GraphBuilder("rows")
    x = g.input("x", "rows", 8)
    y = g.gelu(x)
    for wrong in (y.columns(0, 4), y.columns(4, 4), x, x.rows_of(4)):
        with pytest.raises(ValueError, match="whole result"):
            g.output("y", wrong)


def test_a_result_has_one_name_and_a_name_one_result() -> None:
    g = GraphBuilder("rows")
    x = g.input("x", "rows", 8)
    y = g.gelu(x)
    g.output("y", y)
    for name, wrong in (("z", y), ("y", g.gelu(y)), ("x", g.gelu(y))):
        with pytest.raises(ValueError, match="name"):
            g.output(name, wrong)
    for again in ("x", "y"):
        with pytest.raises(ValueError, match="taken"):
            g.input(again, "rows", 8)
        with pytest.raises(ValueError, match="taken"):
            g.index_input(again, "rows")


def test_dimensions_are_known_and_have_an_input() -> None:
    g = GraphBuilder("rows", "others")
    with pytest.raises(ValueError, match="no dimension columns"):
        g.input("x", "columns", 8)
    g.input("x", "rows", 8)
    with pytest.raises(ValueError, match="others"):
        g.build()


def two_dims() -> Plan:
    g = GraphBuilder("rows", "others")
    x = g.set_rows(g.input("x", "rows", 8), g.input("v", "others", 8), g.index_input("i", "others"))
    g.output("y", x)
    return g.build()


GOOD = {"x": normal(5, 8), "v": normal(2, 8), "i": np.array([4, 0], np.int32)}


def native(plan: Plan) -> NativeExecutor:
    return NativeExecutor(plan, _native.Engine(1))


@pytest.mark.parametrize("executor", [ReferenceExecutor, native])
@pytest.mark.parametrize(
    "wrong",
    [
        {"x": None},
        {"z": normal(5, 8)},
        {"v": normal(3, 8)},
        {"i": np.array([4, 0, 1], np.int32)},
        {"x": normal(5, 9)},
        {"x": normal(10, 4)},
        {"x": normal(8, 5).T.reshape(5, 8).astype(np.complex64)},
        {"x": np.ones((5, 8), np.int32)},
        {"x": np.array([["a"] * 8] * 5)},
        {"i": np.array([4.0, 0.0], np.float32)},
        {"i": np.array([4, 2**32], np.int64)},
        {"x": np.float32(1)},
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(executor: Any, wrong: dict[str, Any]) -> None:
    given = {name: array for name, array in (GOOD | wrong).items() if array is not None}
    with pytest.raises(ValueError, match="input"):
        executor(two_dims()).run(given)


def test_inputs_of_any_layout_give_the_same_result() -> None:
    executor = native(two_dims())
    expected = executor.run(GOOD)["y"]
    frozen = GOOD["x"].copy()
    frozen.flags.writeable = False
    for x in (
        frozen,
        GOOD["x"].astype(np.float64),
        np.asfortranarray(GOOD["x"]),
        GOOD["x"].tolist(),
    ):
        given = GOOD | {"x": x, "i": np.array([4, 0], np.int64)}
        np.testing.assert_array_equal(executor.run(given)["y"], expected)


def test_dimensions_without_rows_run() -> None:
    executor = native(two_dims())
    nothing = {"v": np.zeros((0, 8), np.float32), "i": np.zeros(0, np.int32)}
    np.testing.assert_array_equal(executor.run(GOOD | nothing)["y"], GOOD["x"])
    assert executor.run(nothing | {"x": np.zeros((0, 8), np.float32)})["y"].shape == (0, 8)


def test_repeated_indices_keep_the_last_value() -> None:
    given = GOOD | {"i": np.array([3, 3], np.int32)}
    for executor in (ReferenceExecutor(two_dims()), native(two_dims())):
        np.testing.assert_array_equal(executor.run(given)["y"][3], GOOD["v"][1])
