"""Whatever is asked of the core: a result or an exception, never the end of the process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stapes import _native
from stapes.graph import GraphBuilder, NativeExecutor

REFUSALS = (ValueError, TypeError, IndexError, MemoryError)

Op = tuple[Any, ...]


def view(buffer: int, width: int = 8) -> tuple[int, int, int, int, int]:
    return (buffer, 1, width, 0, width)


BUFFERS = [("x", "f32", 0, 8, -1), ("i", "i32", 0, 1, -1), ("y", "f32", 0, 8, -1)]
GELU: Op = ("gelu", [view(0)], view(2), [], [], [], [])


def plan(ops: Any = (GELU,), buffers: Any = None, **more: Any) -> _native.Plan:
    given = {"dims": ["rows"], "matrices": [], "vectors": []} | more
    return _native.Plan(
        given["dims"], buffers or BUFFERS, list(ops), given["matrices"], given["vectors"]
    )


def arrays(rows: int) -> list[np.ndarray]:
    x = np.zeros((rows, 8), np.float32)
    return [x, np.zeros(rows, np.int32), x.copy()]


@pytest.fixture(scope="module")
def engine() -> _native.Engine:
    return _native.Engine(2)


def test_the_plan_that_the_others_vary_runs(engine: _native.Engine) -> None:
    plan().run(engine, [3], arrays(3), [])


# -- plans -----------------------------------------------------------------------------------------

BAD_VIEWS = {
    "no such buffer": (9, 1, 8, 0, 8),
    "a negative buffer": (-1, 1, 8, 0, 8),
    "too wide": (0, 1, 9, 0, 9),
    "wider than its stride": (0, 1, 4, 0, 8),
    "starting late": (0, 1, 8, 1, 8),
    "too many rows": (0, 2, 8, 0, 8),
    "no rows": (0, 0, 8, 0, 8),
    "no width": (0, 1, 8, 0, 0),
    "rows that overflow": (0, 2**61, 8, 0, 8),
    "a start that overflows": (0, 1, 8, 2**64 - 8, 8),
    "a width beyond 64 bits": (0, 1, 8, 0, 2**70),
    "a negative width": (0, 1, 8, 0, -8),
    "four numbers": (0, 1, 8, 0),
    "six numbers": (0, 1, 8, 0, 8, 8),
    "a float": (0, 1, 8, 0, 8.5),
    "nothing": None,
}


@pytest.mark.parametrize("bad", BAD_VIEWS.values(), ids=BAD_VIEWS)
def test_a_bad_view_is_refused(bad: Any) -> None:
    with pytest.raises(REFUSALS):
        plan([("gelu", [bad], view(2), [], [], [], [])])
    with pytest.raises(REFUSALS):
        plan([("gelu", [view(0)], bad, [], [], [], [])])


BAD_OPS: dict[str, Any] = {
    "an unknown name": ("softmax", [view(0)], view(2), [], [], [], []),
    "no name": (None, [view(0)], view(2), [], [], [], []),
    "three fields": ("gelu", [view(0)], view(2)),
    "no fields": (),
    "nothing": None,
    "no inputs": ("gelu", [], view(2), [], [], [], []),
    "inputs that are no list": ("gelu", 3, view(2), [], [], [], []),
    "a superfluous int": ("gelu", [view(0)], view(2), [], [], [1], []),
    "an int beyond 64 bits": ("rms_norm", [view(0)], view(2), [], [0], [10**40], [1e-6]),
    "a missing matrix": ("linear", [view(0)], view(2), [0], [], [0], []),
    "a negative matrix": ("linear", [view(0)], view(2), [-1], [], [0], []),
    "a missing vector": ("rms_norm", [view(0)], view(2), [], [3], [1], [1e-6]),
    "no vector at all": ("rms_norm", [view(0)], view(2), [], [], [1], [1e-6]),
    "zero groups": ("rms_norm", [view(0)], view(2), [], [0], [0], [1e-6]),
    "an unknown activation": ("linear", [view(0)], view(2), [0], [], [3], []),
    "a convolution without weights": (
        *("depthwise_conv", [view(0), view(1, 1), view(1, 1)], view(2)),
        *([], [], [], []),
    ),
    "negative groups": ("rms_norm", [view(0)], view(2), [], [0], [-1], [1e-6]),
    "an f32 index": ("take_rows", [view(0), view(0, 8)], view(2), [], [], [], []),
    "an i32 operand": ("gelu", [view(1, 1)], (2, 1, 8, 0, 1), [], [], [], []),
    "an i32 result": ("gelu", [(0, 1, 8, 0, 1)], view(1, 1), [], [], [], []),
    "an f32 argmax": ("argmax", [view(0)], (2, 1, 8, 0, 1), [], [], [], []),
    "another width": ("gelu", [(0, 1, 8, 0, 7)], view(2), [], [], [], []),
    "its own input as result": ("gelu", [view(0)], view(0), [], [], [], []),
}


@pytest.mark.parametrize("bad", BAD_OPS.values(), ids=BAD_OPS)
def test_a_bad_op_is_refused(bad: Any) -> None:
    with pytest.raises(REFUSALS):
        plan([bad], vectors=[np.ones(8, np.float32)])


BAD_BUFFERS: dict[str, Any] = {
    "no such dimension": ("x", "f32", 1, 8, -1),
    "a negative dimension": ("x", "f32", -1, 8, -1),
    "an unknown type": ("x", "f64", 0, 8, -1),
    "no elements": ("x", "f32", 0, 0, -1),
    "elements that overflow": ("x", "f32", 0, 2**63, -1),
    "a slot out of range": ("x", "f32", 0, 8, 99),
    "a slot beyond 32 bits": ("x", "f32", 0, 8, 2**40),
    "three fields": ("x", "f32", 0),
}


@pytest.mark.parametrize("bad", BAD_BUFFERS.values(), ids=BAD_BUFFERS)
def test_a_bad_buffer_is_refused(bad: Any) -> None:
    with pytest.raises(REFUSALS):
        plan(buffers=[bad, *BUFFERS[1:]])


def test_indices_must_come_from_the_caller() -> None:
    """An op could write any number into them after they were checked."""
    argmax = ("argmax", [view(0)], view(1, 1), [], [], [], [])
    take = ("take_rows", [view(0), view(1, 1)], view(2), [], [], [], [])
    inner = [BUFFERS[0], ("i", "i32", 0, 1, 0), BUFFERS[2]]
    with pytest.raises(ValueError, match="writes over indices"):
        plan([argmax, take])
    with pytest.raises(ValueError, match="no input of the plan"):
        plan([argmax, take], buffers=inner)


def test_ops_that_share_memory_with_their_operands_are_refused() -> None:
    shared = [("x", "f32", 0, 8, 0), BUFFERS[1], ("y", "f32", 0, 8, 0)]
    with pytest.raises(ValueError, match="writes over what it reads"):
        plan(buffers=shared)


# -- runs ------------------------------------------------------------------------------------------


def bad_arrays() -> dict[str, list[Any]]:
    x, i, y = arrays(3)
    frozen = y.copy()
    frozen.flags.writeable = False
    unaligned = np.frombuffer(bytearray(3 * 8 * 4 + 1), np.uint8)[1:].view(np.float32)
    return {
        "one too few": [x, i],
        "one too many": [x, i, y, y],
        "too short": [x[:2], i, y],
        "of other types": [x, i.astype(np.float32), y],
        "f64": [x.astype(np.float64), i, y],
        "i64": [x, i.astype(np.int64), y],
        "not contiguous": [x, i, np.zeros((3, 16), np.float32)[:, ::2]],
        "read-only": [x, i, frozen],
        "not aligned": [x, i, unaligned],
        "None": [x, i, None],
        "a list": [x, i, [0.0] * 24],
    }


@pytest.mark.parametrize("name", bad_arrays())
def test_bad_arrays_are_refused(name: str, engine: _native.Engine) -> None:
    with pytest.raises(REFUSALS):
        plan().run(engine, [3], bad_arrays()[name], [])


@pytest.mark.parametrize(
    "counts", [[], [3, 3], [2], [-1], [2**31], [2**61], [2**64], [10**30], [None], None, [3.5]]
)
def test_bad_counts_are_refused(counts: Any, engine: _native.Engine) -> None:
    with pytest.raises(REFUSALS):
        plan().run(engine, counts, arrays(3), [])


def test_sizes_whose_product_overflows_are_refused(engine: _native.Engine) -> None:
    """2^31 rows of 2^33 elements are no bytes at all modulo 2^64."""
    buffers = [("x", "f32", 0, 2**33, 0), ("y", "f32", 0, 2**33, 1)]
    huge = plan([("gelu", [view(0)], view(1), [], [], [], [])], buffers=buffers)
    with pytest.raises(ValueError, match="too large"):
        huge.run(engine, [2**31], [], [])


def test_memory_that_is_not_there_is_a_memory_error(engine: _native.Engine) -> None:
    buffers = [("x", "f32", 0, 1, -1), ("y", "f32", 0, 2**40, 0)]
    huge = plan([("gelu", [view(0, 1)], (1, 1, 1, 0, 1), [], [], [], [])], buffers=buffers)
    with pytest.raises(MemoryError):
        huge.run(engine, [1], [np.zeros(1, np.float32)], [])


@pytest.mark.parametrize("caches", [[None], [3], None, ["cache"]])
def test_bad_caches_are_refused(caches: Any, engine: _native.Engine) -> None:
    with pytest.raises(REFUSALS):
        plan().run(engine, [3], arrays(3), caches)


@pytest.mark.parametrize("engine_", [None, 3, "avx2"])
def test_what_is_no_engine_is_refused(engine_: Any) -> None:
    with pytest.raises(TypeError):
        plan().run(engine_, [3], arrays(3), [])


@pytest.mark.parametrize("index", [-1, 5, 2**31 - 1, -(2**31)])
def test_an_index_out_of_range_names_itself_and_its_row(index: int, engine: _native.Engine) -> None:
    g = GraphBuilder("rows", "picked")
    g.output("y", g.take_rows(g.input("x", "rows", 4), g.index_input("index", "picked")))
    x = np.zeros((5, 4), np.float32)
    given = {"x": x, "index": np.array([0, index], np.int32)}
    with pytest.raises(IndexError, match=f"index {index} of row 1"):
        NativeExecutor(g.build(), engine).run(given)


# -- attention -------------------------------------------------------------------------------------


def attention() -> GraphBuilder:
    g = GraphBuilder("rows")
    qkv = g.input("qkv", "rows", 12).split(4, 4, 4)
    where = [g.index_input("sequences", "rows"), g.index_input("positions", "rows")]
    g.output("y", g.cached_attention(*qkv, *where, layer=1, heads=2, kv_heads=2, head_dim=2))
    return g


def attend(
    engine: _native.Engine, caches: list[Any], sequences: list[int], positions: list[int]
) -> None:
    inputs = {
        "qkv": np.zeros((len(sequences), 12), np.float32),
        "sequences": np.array(sequences, np.int32),
        "positions": np.array(positions, np.int32),
    }
    NativeExecutor(attention().build(), engine).run(inputs, caches)


@pytest.mark.parametrize(
    ("sequences", "positions", "why"),
    [
        ([2], [0], "no sequence 2"),
        ([-1], [0], "no sequence -1"),
        ([0], [-1], "negative"),
        ([0], [1], "beyond what its cache holds"),
        ([0], [2**31 - 1], "beyond what its cache holds"),
        ([0, 0], [0, 2], "gap"),
        ([0, 0], [0, 0], "gap"),
        ([0, 1, 0], [0, 0, 1], "comes twice"),
    ],
)
def test_rows_that_do_not_continue_their_sequence_are_refused(
    sequences: list[int], positions: list[int], why: str, engine: _native.Engine
) -> None:
    caches = [_native.KvCache(2, 2, 2, "f16") for _ in range(2)]
    with pytest.raises(IndexError, match=why):
        attend(engine, caches, sequences, positions)
    assert [cache.length for cache in caches] == [0, 0]


@pytest.mark.parametrize("shape", [(1, 2, 2), (2, 1, 2), (2, 2, 3), (2, 4, 2)])
def test_a_cache_of_another_shape_is_refused(
    shape: tuple[int, int, int], engine: _native.Engine
) -> None:
    with pytest.raises(IndexError, match="another shape"):
        attend(engine, [_native.KvCache(*shape, "f16")], [0], [0])


def test_one_cache_for_two_sequences_is_refused(engine: _native.Engine) -> None:
    cache = _native.KvCache(2, 2, 2, "f16")
    with pytest.raises(ValueError, match="given twice"):
        attend(engine, [cache, cache], [0, 1], [0, 0])
    attend(engine, [cache], [0], [0])
    assert cache.length == 1


@pytest.mark.parametrize(
    ("starts", "ends"),
    [
        ([0, 0, 0], [3, 3, 4]),
        ([0, 0, 0], [3, 3, 2]),
        ([0, 1, 2], [3, 2, 3]),
        ([0, 0, 1], [3, 3, 3]),
        ([1, 1, 1], [3, 3, 3]),
        ([-1, 0, 0], [3, 3, 3]),
        ([0, 0, 0], [-1, 3, 3]),
        ([0, 0, 2], [2, 2, 2]),
        ([0, 0, 2], [2, 2, 2**31 - 1]),
    ],
)
@pytest.mark.parametrize("kind", ["window_attention", "depthwise_conv"])
def test_windows_that_are_no_runs_of_rows_are_refused(
    starts: list[int], ends: list[int], kind: str, engine: _native.Engine
) -> None:
    g = GraphBuilder("rows")
    q, k, v = g.input("qkv", "rows", 12).split(4, 4, 4)
    where = [g.index_input("starts", "rows"), g.index_input("ends", "rows")]
    if kind == "window_attention":
        g.output("y", g.window_attention(q, k, v, *where, heads=2, head_dim=2))
    else:
        ones = np.ones(4, np.float32)
        g.output("y", g.depthwise_conv(q, ones, ones, *where))
    inputs = {
        "qkv": np.zeros((3, 12), np.float32),
        "starts": np.array(starts, np.int32),
        "ends": np.array(ends, np.int32),
    }
    with pytest.raises(IndexError, match="no run of rows"):
        NativeExecutor(g.build(), engine).run(inputs)


# -- ranges of columns -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "starts", "ends", "which"),
    [
        ([0, 5], [0, 0], [1, 1], "index 5 of row 1"),
        ([-1, 0], [0, 0], [1, 1], "index -1 of row 0"),
        ([0, 1], [0, -1], [1, 1], "range 1"),
        ([0, 1], [0, 3], [1, 3], "range 1"),
        ([0, 1], [0, 3], [1, 5], "range 1"),
        ([0, 1], [0, 3], [1, 2**31 - 1], "range 1"),
        ([1, 0], [0, 0], [1, 1], "range 1"),
        ([1, 1], [0, 1], [2, 3], "range 1"),
        ([1, 1], [2, 0], [3, 1], "range 1"),
    ],
)
def test_wrong_ranges_of_columns(rows, starts, ends, which, engine: _native.Engine) -> None:
    g = GraphBuilder("rows", "ranges")
    x = g.input("x", "rows", 4)
    named = {"rows": rows, "starts": starts, "ends": ends}
    g.output("y", g.keep_columns(x, *(g.index_input(name, "ranges") for name in named)))
    given = {name: np.array(values, np.int32) for name, values in named.items()}
    with pytest.raises(IndexError, match=which):
        NativeExecutor(g.build(), engine).run({"x": np.zeros((5, 4), np.float32), **given})


# -- scales of a step ------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [-1, 2, 2**31 - 1])
def test_scales_that_are_not_there_are_refused(index: int, engine: _native.Engine) -> None:
    g = GraphBuilder("rows", "steps")
    x, scales = g.input("x", "rows", 4), g.input("scales", "steps", 4)
    g.output("y", g.adaptive_rms_norm(x, scales, g.index_input("index", "rows"), 1e-6))
    inputs = {
        "x": np.ones((3, 4), np.float32),
        "scales": np.ones((2, 4), np.float32),
        "index": np.array([0, 1, index], np.int32),
    }
    with pytest.raises(IndexError, match=r"outside 0\.\.1"):
        NativeExecutor(g.build(), engine).run(inputs)
