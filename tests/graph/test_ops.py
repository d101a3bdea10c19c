"""Every op of the table through the reference and the native executor."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pytest

from graph.cases import CASES, Array, Case
from stapes import _native
from stapes.graph import Executor, ReferenceExecutor
from stapes.graph.ops import OPS

#: How far native may be from the reference, relative to the largest value of the row, or to 1, the
#: size of the inputs. The reference computes in f64 and rounds once, the core in f32 (eps 6e-8).
TOLERANCES = {
    "embed": 0.0,  # a copy, or one product of an integer and a scale
    "set_rows": 0.0,
    "take_rows": 0.0,
    "linear": 3e-6,  # sums of up to 700 rounded products; GELU's erf adds 1e-6
    "conv2d": 3e-6,
    "depthwise_conv": 3e-6,  # up to 63 rounded products
    "rms_norm": 1e-6,  # one sum in f32 and two products
    "adaptive_rms_norm": 1e-6,
    "layer_norm": 4e-6,  # the mean is subtracted: its error is amplified
    "rope_angles": 1e-7,  # f64 sines, rounded once: their last bit is the libraries'
    "rope": 0.0,  # three rounded operations, the same in NumPy
    "cached_attention": 5e-6,  # scores up to about 10 at 1e-6, then exp at 2 ulp and sums
    "window_attention": 5e-6,
    "silu_gate": 1e-6,  # exp at 2 ulp, a division and two products
    "gelu": 2e-6,  # erf at 1e-6
    "add": 0.0,
    "add_periodic": 0.0,
    "keep_columns": 0.0,
    "argmax": 0.0,
}


def assert_close(actual: Array, expected: Array, tolerance: float) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if expected.dtype == np.int32 or tolerance == 0:
        np.testing.assert_array_equal(actual, expected)
        return
    if expected.size:
        scale = np.abs(expected).max(axis=1, keepdims=True)
        error = np.abs(actual.astype(np.float64) - expected) / np.maximum(scale, 1)
        assert error.max() <= tolerance


def results(executor: Executor, case: Case, steps: Sequence[dict[str, Array]]) -> list[Array]:
    caches = [] if case.cache is None else [executor.new_cache(*case.cache)]
    out = []
    for inputs in steps:
        for cache in caches:
            cache.truncate(0)
        out.append(executor.run(inputs, caches)["y"])
    return out


@functools.cache
def problem(case_number: int) -> tuple[list[dict[str, Array]], list[Array]]:
    """The inputs of a case's runs, and what the reference makes of them."""
    case = CASES[case_number]
    rng = np.random.default_rng(case_number)
    steps = [case.inputs(rows, rng) for rows in case.rows]
    return steps, results(ReferenceExecutor(case.plan(), case.bits), case, steps)


@pytest.mark.parametrize("instructions", _native.instruction_sets())
@pytest.mark.parametrize("number", range(len(CASES)), ids=[str(case) for case in CASES])
def test_native_is_the_reference(number: int, instructions: str) -> None:
    case = CASES[number]
    steps, expected = problem(number)
    executor = case.native(2, instructions)
    for actual, wanted in zip(results(executor, case, steps), expected, strict=True):
        assert_close(actual, wanted, TOLERANCES[case.kind])


def test_every_op_has_cases_and_a_tolerance() -> None:
    assert {case.kind for case in CASES} == set(OPS) == set(TOLERANCES)


def test_case_names_are_unique() -> None:
    assert len({str(case) for case in CASES}) == len(CASES)


def test_the_core_knows_exactly_the_ops_of_the_table() -> None:
    for name in OPS:
        with pytest.raises(ValueError, match="wrong number of operands"):
            _native.Plan(
                ["rows"],
                [("x", "f32", 0, 1, -1)],
                [(name, [], (0, 1, 1, 0, 1), [], [], [], [])],
                [],
                [],
            )
