"""Values at the edge: denormals, extremes, and that nothing that is not finite becomes finite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from graph.cases import CASES, FACTORS, Case, matrix, normal, run_case
from graph.test_ops import assert_close
from stapes import _native
from stapes.graph import GraphBuilder, NativeExecutor, ReferenceExecutor, View
from stapes.options import ACTIVATION_BITS, ActivationBits
from stapes.weights import PackedMatrix, pack_reference

F32 = NDArray[np.float32]
SETS = _native.instruction_sets()
BAD = [np.nan, np.inf, -np.inf]

each_set = pytest.mark.parametrize("instructions", SETS)
each_bits = pytest.mark.parametrize("bits", ACTIVATION_BITS)
each_bad = pytest.mark.parametrize("bad", BAD)


def both(
    build: Callable[[GraphBuilder, View], View],
    x: F32,
    instructions: str,
    bits: ActivationBits = 13,
) -> tuple[F32, F32]:
    """What the native core and the reference make of x."""
    g = GraphBuilder("rows")
    g.output("y", build(g, g.input("x", "rows", x.shape[1])))
    plan = g.build()
    native = NativeExecutor(plan, _native.Engine(2, instructions), activation_bits=bits)
    with np.errstate(all="ignore"):
        return run_case(native, {"x": x}), run_case(ReferenceExecutor(plan, bits), {"x": x})


# -- finite extremes -------------------------------------------------------------------------------


@each_set
@pytest.mark.parametrize("factor", ["f32", "bf16", "q8", "q8-9bit"])
@pytest.mark.parametrize("scale", [0.0, 1e-45, 1e-40, 1e-37, 1e-30, 1e15, 1e30])
@pytest.mark.parametrize("rows", [3, 20])
def test_inputs_of_any_size(scale: float, factor: str, rows: int, instructions: str) -> None:
    format, bits = FACTORS[factor]
    x = normal(rows, 70) * np.float32(scale)
    x[1] = 0
    actual, expected = both(lambda g, x: g.linear(x, matrix(17, 70, format)), x, instructions, bits)
    assert np.isfinite(actual).all()
    # denormal products have fewer bits: an error of the smallest normal number is fine
    error = np.abs(actual.astype(np.float64) - expected)
    assert (error <= 3e-6 * np.abs(expected).max() + 1e-35).all()
    assert not actual[1].any()


@each_set
@each_bits
@pytest.mark.parametrize("rows", [3, 20])
def test_rows_of_one_size_do_not_disturb_their_neighbours(
    rows: int, bits: ActivationBits, instructions: str
) -> None:
    x = normal(rows, 70) * np.float32(10) ** np.arange(-30, -30 + 3 * rows, 3)[:, None]
    x = np.where(np.abs(x) < 1e35, x, 0).astype(np.float32)
    actual, expected = both(lambda g, x: g.linear(x, matrix(17, 70, "q8")), x, instructions, bits)
    for got, wanted in zip(actual, expected, strict=True):
        assert (np.abs(got - wanted) <= 3e-6 * np.abs(wanted).max()).all()


def planted(values: NDArray[np.int8], scales: NDArray[np.float16], in_: int) -> PackedMatrix:
    """A q8 matrix with these int8 values [16, blocks * 32] and scales [16, blocks]."""
    packed = pack_reference(np.zeros((16, in_), np.float32), "q8")
    blocks = scales.shape[1]
    raw = packed.data.reshape(blocks, 544).copy()
    raw[:, :32] = np.ascontiguousarray(scales.T).view(np.uint8)
    tiles = values.reshape(16, blocks, 16, 2).transpose(1, 2, 0, 3)
    raw[:, 32:] = np.ascontiguousarray(tiles).view(np.uint8).reshape(blocks, 512)
    return replace(packed, data=raw.reshape(-1))


@each_set
@pytest.mark.parametrize("rows", [1, 4, 9, 40])
@pytest.mark.parametrize("value", [-128, -127, 127])
@each_bits
def test_extreme_integers_do_not_overflow(
    bits: ActivationBits, value: int, rows: int, instructions: str
) -> None:
    """-128 never comes from our packing, but may stand in a file."""
    weights = planted(np.full((16, 64), value, np.int8), np.ones((16, 2), np.float16), 64)
    for sign in (1, -1):
        x = np.full((rows, 64), sign * 127, np.float32)
        actual, expected = both(lambda g, x: g.linear(x, weights), x, instructions, bits)
        assert (actual == sign * 64 * 127 * value).all()
        np.testing.assert_array_equal(actual, expected)


@each_set
@pytest.mark.parametrize("rows", [1, 20])
def test_scales_of_zero_and_denormal_scales(rows: int, instructions: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-128, 128, (16, 64)).astype(np.int8)
    scales = rng.choice(np.array([0, 6e-8, 3e-5, 1, 65504], np.float16), (16, 2))
    weights = planted(values, scales.astype(np.float16), 64)
    actual, expected = both(lambda g, x: g.linear(x, weights), normal(rows, 64), instructions)
    assert_close(actual, expected, 3e-6)
    assert np.isfinite(actual).all()


@each_set
@pytest.mark.parametrize("rows", [1, 20])
def test_a_scale_that_is_nan_or_infinite_shows(rows: int, instructions: str) -> None:
    for bad in BAD:
        scales = np.ones((16, 2), np.float16)
        scales[5, 1] = bad
        weights = planted(np.ones((16, 64), np.int8), scales, 64)
        actual, _ = both(lambda g, x, w=weights: g.linear(x, w), normal(rows, 64), instructions)
        assert not np.isfinite(actual[:, 5]).any()
        assert np.isfinite(np.delete(actual, 5, axis=1)).all()


LARGE = np.array([[1e3, -1e3, 88, -88, -90, 104, -104, 1e18, -1e18, 1e30, -1e30, -3e38, 3e38, 0]])


@each_set
def test_gelu_and_silu_of_large_values(instructions: str) -> None:
    x = LARGE.astype(np.float32)
    actual, expected = both(lambda g, x: g.gelu(x), x, instructions)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    ones = np.ones_like(x)
    pair = np.concatenate([x, ones], axis=1)
    actual, expected = both(lambda g, x: g.silu_gate(*x.split(14, 14)), pair, instructions)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


@each_set
def test_every_value_of_the_functions(instructions: str) -> None:
    """A dense sweep: the polynomials have no bad spot."""
    x = np.linspace(-30, 30, 64 * 999, dtype=np.float32).reshape(-1, 64)
    actual, expected = both(lambda g, x: g.gelu(x), x, instructions)
    assert np.abs(actual - expected).max() < 3e-6
    pair = np.concatenate([x, np.ones_like(x)], axis=1)
    actual, expected = both(lambda g, x: g.silu_gate(*x.split(64, 64)), pair, instructions)
    np.testing.assert_allclose(actual, expected, rtol=5e-7, atol=1e-12)


@each_set
@pytest.mark.parametrize("rows", [1, 40])
def test_silu_of_large_values_behind_a_matrix(rows: int, instructions: str) -> None:
    x = LARGE.astype(np.float32).repeat(rows).reshape(-1, 1)
    one = pack_reference(np.ones((1, 1), np.float32), "f32")
    actual, expected = both(lambda g, x: g.linear(x, one, activation="silu"), x, instructions)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


@each_set
@each_bad
def test_a_bad_value_shows_wherever_a_tap_reaches_it(bad: float, instructions: str) -> None:
    case = next(c for c in CASES if str(c) == "depthwise_conv-7x17")
    rows, spoilt, channel = 33, 15, 16
    inputs = case.inputs(rows, np.random.default_rng(0))
    inputs["x"][spoilt, channel] = bad
    finite = np.isfinite(run_once(case, inputs, instructions))
    near = np.abs(np.arange(rows) - spoilt) <= 3
    seeing = near & (inputs["starts"] == inputs["starts"][spoilt])
    assert 1 < seeing.sum() < 7
    np.testing.assert_array_equal(finite[:, channel], ~seeing)
    assert finite[:, :channel].all()


@each_set
def test_norms_of_rows_of_zeros_and_constants(instructions: str) -> None:
    x = np.zeros((3, 33), np.float32)
    x[1] = 5
    weight, bias = np.ones(33, np.float32), np.full(33, 2, np.float32)
    actual, _ = both(lambda g, x: g.rms_norm(x, weight, 1e-6), x, instructions)
    np.testing.assert_allclose(actual, [[0] * 33, [1] * 33, [0] * 33], rtol=1e-6)
    actual, _ = both(lambda g, x: g.layer_norm(x, weight, bias, 1e-5), x, instructions)
    np.testing.assert_array_equal(actual, np.full((3, 33), 2, np.float32))


# -- what is not finite ----------------------------------------------------------------------------

#: Ops whose every output of a row must show a bad value of the row, and where it is put.
ROW_OPS: dict[str, Callable[[GraphBuilder, View], View]] = {
    "linear-f32": lambda g, x: g.linear(x, matrix(20, 45, "f32")),
    "linear-bf16": lambda g, x: g.linear(x, matrix(20, 45, "bf16")),
    "linear-q8": lambda g, x: g.linear(x, matrix(20, 45, "q8")),
    "linear-q8-9bit": lambda g, x: g.linear(x, matrix(20, 45, "q8")),
    "rms_norm": lambda g, x: g.rms_norm(x, np.ones(45, np.float32), 1e-6),
    "layer_norm": lambda g, x: g.layer_norm(x, np.ones(45, np.float32), normal(45), 1e-5),
}
#: Ops that keep columns apart: the bad column must stay bad.
COLUMN_OPS: dict[str, Callable[[GraphBuilder, View], View]] = {
    "gelu": lambda g, x: g.gelu(x),
    "silu": lambda g, x: g.silu_gate(x, x),
    "add": lambda g, x: g.add(x, x),
    "add_periodic": lambda g, x: g.add_periodic(x, normal(2, 45)),
}


def spoiled(rows: int, column: int, bad: float) -> F32:
    x = normal(rows, 45)
    x[rows // 2, column] = bad
    return x


@each_set
@each_bad
@pytest.mark.parametrize("rows", [1, 3, 9, 40])
@pytest.mark.parametrize("name", ROW_OPS)
def test_a_bad_value_spoils_its_row_and_no_other(
    name: str, rows: int, bad: float, instructions: str
) -> None:
    bits: ActivationBits = 9 if name.endswith("9bit") else 13
    for column in (0, 7, 31, 32, 44):
        actual, _ = both(ROW_OPS[name], spoiled(rows, column, bad), instructions, bits)
        assert not np.isfinite(actual[rows // 2]).any()
        assert np.isfinite(np.delete(actual, rows // 2, axis=0)).all()


@each_set
@each_bad
@pytest.mark.parametrize("name", COLUMN_OPS)
def test_a_bad_value_stays_bad_in_its_column(name: str, bad: float, instructions: str) -> None:
    for column in (0, 7, 31, 44):
        x = spoiled(3, column, bad)
        x[0] = np.abs(x[0])
        actual, _ = both(COLUMN_OPS[name], x, instructions)
        assert not np.isfinite(actual[1, column])
        actual[1, column] = 0
        assert np.isfinite(actual).all()


@each_set
@each_bad
@pytest.mark.parametrize("part", ["gate", "up"])
def test_a_bad_gate_or_a_bad_factor_shows(part: str, bad: float, instructions: str) -> None:
    for other in (1.0, -1.0, 100.0, -100.0, 0.0):
        x = np.full((1, 20), other, np.float32)
        x[0, 3 if part == "gate" else 13] = bad
        actual, _ = both(lambda g, x: g.silu_gate(*x.split(10, 10)), x, instructions)
        assert not np.isfinite(actual[0, 3])


@each_set
def test_norms_whose_squares_overflow_are_not_zeros(instructions: str) -> None:
    x = np.full((1, 40), 1e25, np.float32)
    x[0, ::2] = -1e25
    for build in (ROW_OPS["rms_norm"], ROW_OPS["layer_norm"]):
        assert np.isnan(both(build, np.tile(x, 2)[:, :45], instructions)[0]).all()


@each_set
@each_bad
@pytest.mark.parametrize("role", [0, 1, 2], ids=["q", "k", "v"])
@pytest.mark.parametrize("kind", ["cached_attention", "window_attention"])
def test_a_bad_value_shows_in_every_row_that_attends_to_it(
    kind: str, role: int, bad: float, instructions: str
) -> None:
    case = next(c for c in CASES if c.kind == kind and "3" in c.label and "x20" in c.label)
    rows, spoilt = 300, 60
    inputs = case.inputs(rows, np.random.default_rng(0))
    head = inputs["qkv"].shape[1] // 3
    inputs["qkv"][spoilt, role * head + 7] = bad  # a column of the first head
    actual = run_once(case, inputs, instructions)[:, :20]
    finite = np.isfinite(actual).all(axis=1)
    if role == 0:
        seeing = np.arange(rows) == spoilt
    elif kind == "cached_attention":
        seeing = np.arange(rows) >= spoilt
    else:
        seeing = inputs["starts"] == inputs["starts"][spoilt]
    assert seeing.any()
    np.testing.assert_array_equal(finite, ~seeing)


def run_once(case: Case, inputs: dict[str, F32], instructions: str) -> F32:
    executor = case.native(2, instructions)
    caches = (executor.new_cache(*case.cache),) if case.cache else ()
    return run_case(executor, inputs, caches)


@each_set
@pytest.mark.parametrize("value", [65520.0, -65520.0, 1e30, -1e30])
@pytest.mark.parametrize("role", [1, 2], ids=["k", "v"])
def test_keys_and_values_beyond_f16_show(value: float, role: int, instructions: str) -> None:
    """An overflowing key with a score of -infinity would get no weight, and nobody would know."""
    case = next(c for c in CASES if c.kind == "cached_attention" and "f16" in c.label)
    inputs = case.inputs(30, np.random.default_rng(0))
    head = inputs["qkv"].shape[1] // 3
    inputs["qkv"][12, role * head : (role + 1) * head] = value
    actual = run_once(case, inputs, instructions)
    assert np.isfinite(actual[:12]).all()
    assert not np.isfinite(actual[12:]).any()


@each_set
def test_the_largest_f16_value_is_kept(instructions: str) -> None:
    case = next(c for c in CASES if c.kind == "cached_attention" and "f16" in c.label)
    inputs = case.inputs(1, np.random.default_rng(0))
    inputs["qkv"][:] = 65519
    assert (run_once(case, inputs, instructions) == 65504).all()


# -- argmax ----------------------------------------------------------------------------------------


@each_set
@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 16, 23, 100])
def test_argmax_is_the_first_maximum_and_sees_every_nan(width: int, instructions: str) -> None:
    base = -np.abs(normal(width, width)) - 1
    peaks = base.copy()
    np.fill_diagonal(peaks, 5)  # the maximum everywhere
    ties = np.triu(np.full((width, width), 5, np.float32)) + np.tril(base, -1)
    nans = peaks.copy()
    np.fill_diagonal(nans, np.nan)
    rows = np.concatenate([peaks, ties, nans]).astype(np.float32)
    actual, expected = both(lambda g, x: g.argmax(x), rows, instructions)
    np.testing.assert_array_equal(actual, [*range(width), *range(width), *[-1] * width])
    np.testing.assert_array_equal(actual, expected)


@each_set
def test_argmax_of_infinities_and_signed_zeros(instructions: str) -> None:
    inf = np.inf
    rows = [
        [-inf] * 11,
        [0.0] * 10 + [inf],
        [-inf] * 10 + [-3e38],
        [-0.0, 0.0] * 5 + [0.0],
        [inf] * 11,
        [inf] * 10 + [np.nan],
        [np.nan] * 11,
    ]
    x = np.array(rows, np.float32)
    actual, expected = both(lambda g, x: g.argmax(x), x, instructions)
    np.testing.assert_array_equal(actual, [0, 10, 10, 0, 0, -1, -1])
    np.testing.assert_array_equal(actual, expected)


# -- keep_columns ----------------------------------------------------------------------------------


@each_set
def test_columns_outside_all_ranges_are_ruled_out_but_a_nan_stays(instructions: str) -> None:
    g = GraphBuilder("rows", "ranges")
    x = g.input("x", "rows", 6)
    names = ("which", "starts", "ends")
    g.output("y", g.keep_columns(x, *(g.index_input(name, "ranges") for name in names)))
    rows = np.arange(18, dtype=np.float32).reshape(3, 6)
    rows[1, 0], rows[1, 3], rows[1, 5] = np.nan, np.nan, np.inf
    ranges = {"which": [1, 1, 2], "starts": [1, 4, 0], "ends": [3, 5, 6]}
    given = {"x": rows, **{name: np.array(values, np.int32) for name, values in ranges.items()}}
    y = NativeExecutor(g.build(), _native.Engine(2, instructions)).run(given)["y"]
    inf = np.inf
    assert np.array_equal(y[0], rows[0])
    assert np.array_equal(y[1], [np.nan, 7, 8, np.nan, 10, -inf], equal_nan=True)
    assert np.array_equal(y[2], rows[2])
