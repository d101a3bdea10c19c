"""Sampling: which ids may be drawn, which one is, and what makes an answer repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stapes.decoder.sampling import Sampler, SamplingOptions, kept_ids
from stapes.errors import NumericError, RequestError

F32 = NDArray[np.float32]

NOTHING = np.zeros(0, np.int32)
LAST = 1 - 2.0**-53  # the largest number below 1


def f32(values: Iterable[float]) -> F32:
    return np.array(list(values), np.float32)


def given_numbers(*uniforms: float) -> Callable[[], float]:
    return iter(uniforms).__next__


def never() -> float:
    raise AssertionError("a number was drawn")


def sampler(
    said: Sequence[int] = (), eos: Iterable[int] = (), uniform: Any = None, **options: Any
) -> Sampler:
    return Sampler(SamplingOptions(**options), set(eos), np.array(said, np.int32), uniform)


def choices(logits: F32, count: int, **arguments: Any) -> list[int]:
    """Ids chosen from the same logits again and again."""
    chooses = sampler(**arguments)
    return [chooses.choose(logits) for _ in range(count)]


# -- the definition, in plain Python ---------------------------------------------------------------


def defined_scores(
    logits: Sequence[float], said: Sequence[int], banned: Iterable[int], options: SamplingOptions
) -> list[float]:
    scores = list(logits)
    for token in set(said) & set(range(len(scores))):
        factor = options.repetition_penalty
        scores[token] = scores[token] * factor if scores[token] < 0 else scores[token] / factor
    for token in banned:
        scores[token] = -math.inf
    if options.greedy:
        return scores
    return [score / options.temperature for score in scores]


def defined_weights(scores: Sequence[float], options: SamplingOptions) -> dict[int, float]:
    """Weights of the ids that may be drawn, in their order."""
    left = {i: x for i, x in enumerate(scores) if x > -math.inf}
    if options.top_k is not None and options.top_k < len(left):
        least = sorted(left.values())[-options.top_k]
        left = {i: x for i, x in left.items() if x >= least}
    highest = max(left.values())
    weights = {i: math.exp(x - highest) for i, x in left.items()}
    if options.top_p < 1:
        total, so_far = math.fsum(weights.values()), 0.0
        for token in sorted(left, key=lambda i: (left[i], i))[:-1]:
            so_far += weights[token] / total
            if so_far > 1 - options.top_p:
                break
            del left[token]
    return {i: weights[i] for i in left}


def defined_choice(scores: Sequence[float], options: SamplingOptions, uniform: float) -> int:
    if options.greedy:
        return list(scores).index(max(scores))
    weights = defined_weights(scores, options)
    target, so_far = uniform * math.fsum(weights.values()), 0.0
    for token, weight in weights.items():
        so_far += weight
        if so_far > target:
            return token
    return max(weights)


def some_options(rng: np.random.Generator) -> SamplingOptions:
    return SamplingOptions(
        temperature=rng.choice([0, 1, rng.uniform(0.3, 2)], p=[0.1, 0.3, 0.6]).item(),
        top_k=(None, 1, 2, 5, 25, 1000)[rng.integers(6)],
        top_p=rng.choice([1, rng.uniform(0.05, 1)], p=[0.3, 0.7]).item(),
        repetition_penalty=rng.choice([1, rng.uniform(0.5, 2)]).item(),
        min_new_tokens=int(rng.integers(0, 4)),
    )


@given(seed=st.integers(0, 2**32), size=st.integers(3, 900), step=st.sampled_from([0, 0.5, 2]))
def test_ids_are_those_of_the_definition(seed: int, size: int, step: float):
    """Random logits, many of them equal when rounded to a step, some impossible."""
    rng = np.random.default_rng(seed)
    options = some_options(rng)
    said = rng.integers(0, size + 5, 12).tolist()  # the last five lie outside the head
    uniforms = rng.random(6).tolist()
    prompt, numbers = np.array(said, np.int32), given_numbers(*uniforms)
    chooses = Sampler(options, {0, 2, size + 1}, prompt, numbers)
    for new in range(6):
        logits = rng.normal(0, 3, size).astype(np.float32)
        logits = np.round(logits / step) * np.float32(step) if step else logits
        logits[rng.random(size) < 0.1] = -np.inf
        logits[1] = 4
        banned = {0, 2} if new < options.min_new_tokens else set()
        scores = defined_scores(logits.tolist(), said, banned, options)
        expected = defined_choice(scores, options, uniforms[new])
        assert chooses.choose(logits) == expected
        said.append(expected)


def plainly_kept(scores: F32, top_k: int | None, top_p: float) -> list[int]:
    """The same sets without any of the short cuts: everything is sorted, in f32."""
    order = np.argsort(scores, kind="stable")
    if top_k is not None:
        order = order[scores[order] >= scores[order[-min(top_k, order.size)]]]
    weights = np.exp(scores[order] - scores[order[-1]])
    cumulative = np.cumsum(weights / np.float32(weights.sum(dtype=np.float64)), dtype=np.float64)
    removed = cumulative.astype(np.float32) <= np.float32(1 - top_p)
    removed[-1] = False
    return np.sort(order[~removed] if top_p < 1 else order).tolist()


@pytest.mark.parametrize("top_p", [1.0, 0.95, 0.8, 0.1, 0.0])
@pytest.mark.parametrize("top_k", [None, 1, 25, 300, 5000, 200_000])
@pytest.mark.parametrize("scale", [0.1, 2, 10])
def test_short_cuts_change_nothing_in_a_large_vocabulary(scale, top_k, top_p):
    rng = np.random.default_rng(int(scale * 10))
    smooth = rng.normal(0, scale, 30_011).astype(np.float32)
    for scores in (smooth, np.round(smooth)):
        kept = kept_ids(scores, top_k, top_p)
        assert kept.tolist() == plainly_kept(scores, top_k, top_p)
        assert kept.size


# -- which ids may be drawn ------------------------------------------------------------------------


def test_what_equals_the_kth_largest_stays():
    scores = f32([1, 3, 2, 3, 2, 0])
    assert [kept_ids(scores, k, 1.0).tolist() for k in (1, 2, 3, 5, 6, 9)] == [
        [1, 3],
        [1, 3],
        [1, 2, 3, 4],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 3, 4, 5],
    ]


def test_of_equal_scores_top_p_drops_those_with_lower_ids():
    assert kept_ids(f32([1] * 8), None, 0.45).tolist() == [4, 5, 6, 7]
    assert kept_ids(f32([1, 5, 1, 5]), None, 0.3).tolist() == [3]


def test_top_p_compares_in_f32():
    """0.2 in f32 is at most 1 - 0.8 in f32; in f64 it would not be."""
    assert np.float64(np.float32(0.2)) > 1 - 0.8
    assert kept_ids(f32([7] * 5), None, 0.8).tolist() == [1, 2, 3, 4]


def test_top_p_keeps_at_least_one():
    assert kept_ids(f32([0, 2, 1]), None, 0.0).tolist() == [1]
    assert kept_ids(f32([0, 2, 1]), None, 1e-9).tolist() == [1]


def test_top_p_counts_only_what_top_k_left():
    logits = f32(np.log([0.3, 0.3, 0.2, 0.1, 0.1]))
    assert kept_ids(logits, None, 0.7).tolist() == [0, 1, 2]
    assert kept_ids(logits, 3, 0.7).tolist() == [0, 1]


def test_an_impossible_id_is_never_kept():
    scores = f32([-np.inf, 1, -np.inf, 2])
    for top_k in (None, 3, 4):
        for top_p in (1.0, 0.999):
            assert kept_ids(scores, top_k, top_p).tolist() == [1, 3]


# -- repetition penalty, minimum, temperature ------------------------------------------------------


def test_the_penalty_divides_what_is_positive_and_multiplies_what_is_not():
    logits = f32([3, 2, -1, -1.5])
    assert choices(logits, 1, temperature=0, said=[0], repetition_penalty=1.4) == [0]
    assert choices(logits, 1, temperature=0, said=[0], repetition_penalty=1.6) == [1]
    below = {"temperature": 0, "eos": [0, 1], "min_new_tokens": 1, "said": [2]}
    assert choices(logits, 1, repetition_penalty=1.4, **below) == [2]
    assert choices(logits, 1, repetition_penalty=1.6, **below) == [3]


def test_an_id_is_penalised_once_however_often_it_came():
    logits = f32([3, 2])
    assert choices(logits, 3, temperature=0, said=[0] * 9, repetition_penalty=1.4) == [0, 0, 0]


def test_what_has_been_chosen_is_penalised_too():
    logits = f32([5, 4.5, 4, 3])
    assert choices(logits, 5, temperature=0, repetition_penalty=1.2) == [0, 1, 0, 0, 0]
    assert choices(logits, 5, temperature=0, repetition_penalty=1.5) == [0, 1, 2, 0, 0]


def test_ids_outside_the_head_are_no_matter():
    logits = f32([5, 4, 3])
    outside = {"said": [3, 100_000], "eos": [0, 3, 77], "min_new_tokens": 1}
    assert choices(logits, 2, temperature=0, repetition_penalty=1.1, **outside) == [1, 0]


def test_a_penalty_below_one_asks_for_repetition():
    logits = f32([3, 2])
    assert choices(logits, 1, temperature=0, said=[1], repetition_penalty=0.5) == [1]


@pytest.mark.parametrize("options", [{"temperature": 0}, {"seed": 4}])
def test_no_end_before_the_minimum(options):
    logits = f32([9, 1, 8.5, 0.5])  # 0 and 2 end the answer, and are nearly certain
    ids = choices(logits, 30, eos=[0, 2], min_new_tokens=20, **options)
    assert not {0, 2} & set(ids[:20])
    assert {0, 2} & set(ids[20:22])


def test_a_low_temperature_is_nearly_greedy_and_a_high_one_nearly_even():
    logits = f32([1, 1.5, 2, 0])
    assert set(choices(logits, 100, temperature=0.01, seed=0)) == {2}
    hot = np.bincount(choices(logits, 4000, temperature=1000, seed=0))
    assert hot.size == 4
    assert hot.min() > 850


# -- greedy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"temperature": 0}, {"top_k": 1}, {"temperature": 0.0}])
def test_greedy_takes_the_first_maximum_and_draws_nothing(options):
    assert SamplingOptions(**options).greedy
    chooses = sampler(uniform=never, **options)
    assert chooses.choose(f32([1, 7, 3, 7])) == 1
    assert chooses.choose(f32([-np.inf, -2, -3])) == 1
    rng = np.random.default_rng(3)
    for _ in range(50):
        logits = np.round(rng.normal(0, 2, 200)).astype(np.float32)
        assert chooses.choose(logits) == int(logits.argmax())


def test_other_options_are_not_greedy():
    assert not SamplingOptions().greedy
    assert not SamplingOptions(temperature=1e-3, top_k=2, top_p=0.0).greedy


# -- the draw --------------------------------------------------------------------------------------


def test_the_draw_is_the_inverse_of_the_cumulative_distribution():
    logits = f32(np.log([0.125, 0.5, 0.25, 0.125]))
    for uniform, expected in [(0, 0), (0.12, 0), (0.13, 1), (0.62, 1), (0.63, 2), (0.9, 3)]:
        assert choices(logits, 1, uniform=given_numbers(uniform)) == [expected]


def test_at_the_bounds_of_a_share_the_next_id_comes():
    logits = f32([0, 0, 0, 0])
    numbers = given_numbers(0, 0.25, math.nextafter(0.25, 0), 0.5, 0.75, LAST)
    assert choices(logits, 6, uniform=numbers) == [0, 1, 0, 2, 3, 3]


@pytest.mark.parametrize("nothing", [-np.inf, -1e30, -200])
def test_what_has_no_weight_is_never_drawn(nothing: float):
    logits = f32([nothing, 1, nothing, 1.5, nothing])
    assert choices(logits, 2, uniform=given_numbers(0, LAST)) == [1, 3]


def test_only_one_id_that_can_be():
    logits = f32([-np.inf, -np.inf, -70000, -np.inf])
    assert choices(logits, 3, seed=0, top_p=0.9, top_k=3) == [2, 2, 2]
    assert choices(f32([4]), 2, seed=0, top_k=5, top_p=0.1) == [0, 0]


@pytest.mark.parametrize("options", [{}, {"top_k": 5}, {"top_p": 0.8, "temperature": 0.7}])
def test_ids_come_as_often_as_their_weights_say(options):
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 1, 12).astype(np.float32)
    parsed = SamplingOptions(**options)
    weights = defined_weights(defined_scores(logits.tolist(), [], [], parsed), parsed)
    draws = 20_000
    counts = np.bincount(choices(logits, draws, seed=5, **options), minlength=12)
    for token in range(12):
        share = weights.get(token, 0.0) / sum(weights.values())
        assert abs(counts[token] - draws * share) <= 4 * math.sqrt(draws * share * (1 - share))


def test_a_seed_repeats_and_others_differ():
    logits = np.zeros(1000, np.float32)
    answers = [choices(logits, 20, seed=seed) for seed in (0, 0, 1, 2, 2**70, None, None)]
    assert answers[0] == answers[1]
    assert len({tuple(answer) for answer in answers[1:]}) == 6


def test_each_token_takes_the_next_number_of_the_documented_generator():
    """The upper 53 bits of PCG64's next word; also where only one id is left to draw."""
    raw = np.random.PCG64(42).random_raw(40)
    numbers = given_numbers(*((int(word) >> 11) * 2.0**-53 for word in raw))
    rng = np.random.default_rng(0)
    ours, same = sampler(seed=42, top_p=0.5), sampler(uniform=numbers, top_p=0.5)
    rows = rng.normal(0, 3, (40, 300)).astype(np.float32)
    rows[::3, 7] = 60
    assert [ours.choose(row) for row in rows] == [same.choose(row) for row in rows]


@pytest.mark.parametrize("number", [1.0, -1e-9, math.nan, 2.0])
def test_a_number_outside_the_unit_interval_is_refused(number: float):
    with pytest.raises(RequestError, match="numbers from \\[0, 1\\), not"):
        sampler(uniform=given_numbers(number)).choose(f32([1, 2]))


def test_logits_are_left_as_they_are():
    logits = f32([3, 2, 1])
    before = logits.copy()
    logits.flags.writeable = False
    options = {"temperature": 0.5, "top_k": 2, "top_p": 0.9, "repetition_penalty": 2.0}
    choices(logits, 3, said=[0], eos=[1], min_new_tokens=1, seed=0, **options)
    np.testing.assert_array_equal(logits, before)


# -- numbers that are none -------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"temperature": 0}, {"top_k": 2, "top_p": 0.5}])
def test_a_nan_is_an_error_that_names_the_step_even_where_an_end_is_ruled_out(options):
    chooses = sampler(eos=[1], min_new_tokens=9, seed=0, **options)
    for _ in range(3):
        chooses.choose(f32([1, 2, 3]))
    with pytest.raises(NumericError, match="new token 3 hold a NaN"):
        chooses.choose(f32([1, np.nan, 3]))


@pytest.mark.parametrize("options", [{}, {"temperature": 0}, {"top_k": 1}, {"top_p": 0.5}])
def test_where_nothing_is_left_to_choose_there_is_an_error(options):
    for logits, eos in ([1, 2], [0, 1]), ([-np.inf, -np.inf], []):
        with pytest.raises(NumericError, match="as new token 0: the highest of 2 scores is -inf"):
            sampler(eos=eos, min_new_tokens=1, seed=0, **options).choose(f32(logits))


def test_infinity_has_no_softmax_but_is_the_greatest():
    logits = f32([1, np.inf, 2])
    with pytest.raises(NumericError, match="the highest of 3 scores is inf"):
        sampler(seed=0).choose(logits)
    assert sampler(temperature=0).choose(logits) == 1


def test_scores_that_overflow_are_an_error_and_warn_of_nothing():
    with pytest.raises(NumericError, match="the highest of 2 scores is inf"):
        sampler(temperature=1e-37, seed=0).choose(f32([30, 100]))


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [-0.1, math.nan, math.inf, True, "1", None, 1e-50, 10**400]),
        ("top_k", [0, -1, 2.0, True, "5", math.nan]),
        ("top_p", [-0.1, 1.1, math.nan, True, "1", None]),
        ("repetition_penalty", [0, -1, math.nan, math.inf, True, "1", None, 1e-50]),
        ("min_new_tokens", [-1, 1.0, True, None, "1"]),
        ("seed", [-1, 1.5, True, "0"]),
    ],
)
def test_wrong_options_name_their_field_and_value(field: str, values: list[Any]):
    for value in values:
        with pytest.raises(RequestError) as caught:
            SamplingOptions(**{field: value})
        assert str(caught.value).startswith(f"{field} must be ")
        assert str(caught.value).endswith(f", not {value!r}.")


def test_whole_numbers_stand_for_real_ones():
    SamplingOptions(temperature=1, top_k=None, top_p=0, repetition_penalty=2, seed=0)
    SamplingOptions(temperature=0.0, top_k=10**6, top_p=1, min_new_tokens=0, seed=2**128)
