"""What a prompt must be. Checks come in a fixed order, before any work, each with its numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from decoder.tiny import SPEC, checked, scripted
from stapes.decoder import GenerateOptions, Injection, Prompt, generate
from stapes.decoder.prompt import check_prompt
from stapes.errors import CapacityError, NumericError, RequestError

SMALL = replace(SPEC, max_position_embeddings=16)


def rows(count: int, width: int = 64, fill: float = 0.5) -> np.ndarray:
    return np.full((count, width), fill, np.float32)


@dataclass
class Bad:
    """What is wrong with a request, in the order in which it is looked for."""

    error: type[Exception]
    message: str
    ids: Any = (1, 2, 3)
    new: int = 1
    injection: Injection | None = None


NAN = rows(2)
NAN[1, 5] = np.nan
ORDER = {
    "empty": Bad(RequestError, "empty", ids=[]),
    "vocabulary": Bad(RequestError, r"Token 512 at position 2 .* vocabulary of 512", [4, 5, 512]),
    "budget": Bad(RequestError, "max_new_tokens must be positive, not 0", new=0),
    "positions": Bad(CapacityError, "3 tokens and 14 new .* 17 positions, .* has 16", new=14),
    "shape": Bad(
        RequestError,
        r"2 injected positions need values of shape \(2, 64\), not \(3, 64\)",
        injection=Injection(rows(3), [0, 1]),
    ),
    "outside": Bad(
        RequestError,
        "position 3 is outside the prompt of 3",
        injection=Injection(rows(2), [0, 3]),
    ),
    "twice": Bad(
        RequestError, "2 injected positions are not distinct", injection=Injection(rows(2), [1, 1])
    ),
    "finite": Bad(
        NumericError,
        "1 of 2 injected rows are not finite, first the one for position 2",
        injection=Injection(NAN, [1, 2]),
    ),
}


def assert_refused(bad: Bad) -> None:
    with pytest.raises(bad.error, match=bad.message):
        check_prompt(Prompt(bad.ids, bad.injection), bad.new, SMALL)


@pytest.mark.parametrize("name", ORDER)
def test_each_check_has_its_message(name: str):
    assert_refused(ORDER[name])


def combined(first: Bad, second: Bad) -> Bad | None:
    """A request that is wrong in both ways; None when the two cannot meet."""
    default = Bad(first.error, first.message)
    both = Bad(first.error, first.message)
    for field in ("ids", "new", "injection"):
        ours, theirs = getattr(first, field), getattr(second, field)
        changed = [v for v in (ours, theirs) if v is not getattr(default, field)]
        if len(changed) == 2:
            return None
        if changed:
            setattr(both, field, changed[0])
    return both


PAIRS = [
    pytest.param(both, id=f"{first}-before-{second}")
    for i, first in enumerate(ORDER)
    for second in list(ORDER)[i + 1 :]
    if (both := combined(ORDER[first], ORDER[second])) is not None
]


@pytest.mark.parametrize("both", PAIRS)
def test_of_two_faults_the_first_in_order_is_told(both: Bad):
    assert_refused(both)


def test_within_an_injection_the_order_holds_too():
    fill = rows(3)
    fill[:] = np.nan
    for injection, message in (
        (Injection(fill, [0, 9]), "need values"),
        (Injection(fill, [9, 9, 9]), "outside"),
        (Injection(fill, [0, 0, 0]), "distinct"),
        (Injection(fill, [0, 1, 2]), "not finite"),
    ):
        with pytest.raises((RequestError, NumericError), match=message):
            check_prompt(Prompt([1, 2, 3], injection), 1, SMALL)


@pytest.mark.parametrize("token", [-1, -(2**31), 512, 2**31, 2**40])
def test_ids_outside_the_vocabulary_are_named(token: int):
    with pytest.raises(RequestError, match=f"Token {token} at position 1"):
        check_prompt(Prompt([0, token]), 1, SPEC)


@pytest.mark.parametrize("ids", [[0.5], ["a"], [[1, 2]], [None], [True], [2**70]], ids=repr)
def test_ids_that_are_no_whole_numbers_in_one_row_are_refused(ids: Any):
    with pytest.raises(RequestError):
        check_prompt(Prompt(ids), 1, SPEC)


def test_prompt_and_budget_may_fill_the_model_exactly():
    prompt = Prompt(list(range(10)))
    assert len(check_prompt(prompt, 6, SMALL)) == 10
    with pytest.raises(CapacityError, match="17 positions"):
        check_prompt(prompt, 7, SMALL)


@pytest.mark.parametrize(
    "injection",
    [
        Injection(rows(1, width=63), [0]),
        Injection(rows(1)[0], [0]),
        Injection(rows(4).reshape(2, 2, 64), [0, 1]),
        Injection(rows(2), [[0, 1]]),  # type: ignore[list-item]
        Injection(rows(2), [0.0, 1.0]),  # type: ignore[list-item]
        Injection(rows(1), [-1]),
        Injection(np.full((1, 64), "a"), [0]),
        Injection(np.full((1, 64), 1 + 1j), [0]),
        Injection(np.full((1, 64), None), [0]),
    ],
    ids=["width", "flat", "deep", "grid", "fractions", "negative", "text", "complex", "object"],
)
def test_injections_that_do_not_fit_are_refused(injection: Injection):
    with pytest.raises(RequestError):
        check_prompt(Prompt([1, 2, 3], injection), 1, SPEC)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_injected_values_must_be_finite_f32(value: float):
    values = rows(2).astype(np.float64)
    values[0, 63] = value
    with pytest.raises(NumericError, match="first the one for position 1"):
        check_prompt(Prompt([1, 2, 3], Injection(values, [1, 2])), 1, SPEC)


def test_injected_rows_are_put_in_order():
    values = np.arange(3, dtype=np.float32)[:, None] * rows(1, fill=1)
    prompt = checked(Prompt([1, 2, 3, 4], Injection(values, [3, 0, 2])))
    assert prompt.index.tolist() == [0, 2, 3]
    assert prompt.values[:, 0].tolist() == [1, 2, 0]


@pytest.mark.parametrize("positions", [[], np.zeros(0, np.int64), range(0)])
def test_an_empty_injection_is_none(positions: Any):
    prompt = checked(Prompt([1, 2], Injection(rows(0), positions)))
    assert prompt.values.shape == (0, 64)
    assert prompt.index.size == 0


@pytest.mark.parametrize("name", ORDER)
def test_a_refused_prompt_costs_no_run(name: str):
    decoder, script = scripted([1] * 20)
    decoder.spec = SMALL
    bad = ORDER[name]
    with pytest.raises(bad.error):
        generate(decoder.new_session(), Prompt(bad.ids, bad.injection), GenerateOptions(bad.new))
    assert script.rows == []
