"""Drafts: a guess of the answer changes how fast it comes, and never what it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder.tiny import SPEC, decoder, random_prompt, scripted, successor_decoder
from stapes.decoder import (
    Decoder,
    GenerateOptions,
    GenerateResult,
    Prompt,
    SamplingOptions,
    generate,
)
from stapes.errors import RequestError

ENDLESS = replace(SPEC, eos_token_ids=frozenset())
PROMPT = random_prompt(30, range(5, 20))


@pytest.fixture(scope="module")
def runs_on() -> Decoder:
    return decoder(ENDLESS, weights="q8", kv="f16")


@pytest.fixture(scope="module")
def answer(runs_on: Decoder) -> tuple[int, ...]:
    ids = generate(runs_on.new_session(), PROMPT, GenerateOptions(80)).token_ids
    assert len(set(ids)) > 20
    return ids


def drafted(runs_on: Decoder, draft: list[int], budget: int = 40, **more: object) -> GenerateResult:
    options = GenerateOptions(budget, draft_ids=draft, **more)  # type: ignore[arg-type]
    return generate(runs_on.new_session(), PROMPT, options)


@pytest.mark.parametrize("length", [1, 5, 38, 39, 40, 80])
def test_a_right_draft_is_accepted_as_far_as_the_budget_goes(
    runs_on: Decoder, answer: tuple[int, ...], length: int
):
    result = drafted(runs_on, list(answer[:length]))
    assert result.token_ids == answer[:40]
    assert result.draft_offered == result.draft_accepted == min(length, 39)


@pytest.mark.parametrize("wrong", [0, 1, 7, 20])
def test_a_draft_is_accepted_up_to_its_first_wrong_id(
    runs_on: Decoder, answer: tuple[int, ...], wrong: int
):
    draft = list(answer[:30])
    draft[wrong] = (draft[wrong] + 1) % 511
    result = drafted(runs_on, draft)
    assert result.token_ids == answer[:40]
    assert (result.draft_offered, result.draft_accepted) == (30, wrong)


def test_a_right_draft_takes_one_run():
    runs_on, script = scripted([10, 11, 12, 13, 14, 511], prompt=3)
    options = GenerateOptions(20, draft_ids=[10, 11, 12, 13, 14])
    result = generate(runs_on.new_session(), Prompt([1, 2, 3]), options)
    assert result.token_ids == (10, 11, 12, 13, 14)
    assert result.finish_reason == "stop"
    assert script.rows == [8]


def test_a_wrong_draft_costs_no_run_more():
    runs_on, script = scripted([10, 11, 12, 511], prompt=3)
    options = GenerateOptions(20, draft_ids=[10, 99, 98])
    result = generate(runs_on.new_session(), Prompt([1, 2, 3]), options)
    assert result.token_ids == (10, 11, 12)
    assert script.rows == [6, 1, 1]


def test_a_draft_longer_than_a_block_is_checked_in_blocks():
    ids = [i % 40 + 1 for i in range(700)]
    runs_on, script = scripted([*ids, 511], prompt=3)
    result = generate(
        runs_on.new_session(), Prompt([1, 2, 3]), GenerateOptions(1000, draft_ids=ids)
    )
    assert list(result.token_ids) == ids
    assert script.rows == [256, 256, 191]
    assert result.draft_accepted == 700


@pytest.mark.parametrize("position", [0, 1, 5, 18])
def test_an_eos_in_a_draft_ends_what_is_tried(position: int):
    runs_on = successor_decoder({i: i + 1 for i in range(1, 20)}, eos=20)
    draft = list(range(2, 20))
    draft.insert(position, 20)
    result = generate(
        runs_on.new_session(), Prompt([0, 0, 1]), GenerateOptions(40, draft_ids=draft)
    )
    assert list(result.token_ids) == list(range(2, 20))
    assert result.finish_reason == "stop"
    assert result.draft_offered == result.draft_accepted == position


@settings(max_examples=60)
@given(data=st.data())
def test_any_draft_leaves_the_answer_as_it_is(
    runs_on: Decoder, answer: tuple[int, ...], data: st.DataObject
):
    right = data.draw(st.integers(0, 60))
    draft = [*answer[:right], *data.draw(st.lists(st.integers(0, 511), max_size=30))]
    budget = data.draw(st.integers(1, 60))
    sampling = data.draw(st.sampled_from([None, SamplingOptions(0.8, top_k=20, seed=3)]))
    logprobs = data.draw(st.booleans())
    plain = drafted(runs_on, [], budget, sampling=sampling, logprobs=logprobs)
    assert drafted(runs_on, draft, budget, sampling=sampling, logprobs=logprobs) == plain


def test_a_draft_leaves_the_session_as_decoding_does(runs_on: Decoder, answer: tuple[int, ...]):
    """The next prompt reuses as much, and answers the same, whatever was guessed before."""
    for draft in ([], list(answer[:20]), [*answer[:10], 1, 2, 3]):
        session = runs_on.new_session()
        generate(session, PROMPT, GenerateOptions(25, draft_ids=draft))
        assert session.length == 30 + 24
        longer = Prompt([*PROMPT.token_ids, *answer[:25], 7], PROMPT.injection)
        result = generate(session, longer, GenerateOptions(5))
        assert result.reused_tokens == 54
        assert result == generate(runs_on.new_session(), longer, GenerateOptions(5))


def test_callbacks_see_the_same_ids(runs_on: Decoder, answer: tuple[int, ...]):
    seen: list[int] = []
    drafted(runs_on, [*answer[:9], 0], on_token=seen.append)
    assert tuple(seen) == answer[:40]


def test_a_loop_is_found_in_a_draft_too():
    runs_on, _ = scripted([7] * 300, prompt=3)
    plain = generate(runs_on.new_session(), Prompt([1, 2, 3]), GenerateOptions(200, True))
    guessed = GenerateOptions(200, True, draft_ids=[7] * 150)
    assert plain.finish_reason == "loop"
    assert generate(runs_on.new_session(), Prompt([1, 2, 3]), guessed) == plain


@pytest.mark.parametrize("draft", [[512], [-1], [1, 2, 9999], [1.5], [[1, 2]]])
def test_a_draft_of_no_ids_is_refused(runs_on: Decoder, draft: list[int]):
    with pytest.raises(RequestError, match="draft"):
        drafted(runs_on, draft)


def test_drafts_may_be_arrays(runs_on: Decoder, answer: tuple[int, ...]):
    options = GenerateOptions(10, draft_ids=np.array(answer[:5]))
    assert generate(runs_on.new_session(), PROMPT, options).token_ids == answer[:10]
