"""Prefix reuse: in a used session a prompt is computed from where it parts, and answers as new."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decoder.tiny import SPEC, checked, decoder, random_prompt, random_tensors, scripted
from stapes.decoder import Batch, Decoder, GenerateOptions, Injection, Prompt, Session, generate
from stapes.errors import CapacityError, NumericError, RequestError

ENDLESS = replace(SPEC, eos_token_ids=frozenset())


@pytest.fixture(scope="module")
def runs_on() -> Decoder:
    return decoder(ENDLESS, kv="f16")


def cold(runs_on: Decoder, prompt: Prompt, budget: int = 6) -> tuple[int, ...]:
    return generate(runs_on.new_session(), prompt, GenerateOptions(budget)).token_ids


def reused(session: Session, prompt: Prompt, budget: int = 6) -> int:
    """Generate, hold the answer against a cold start, and say how much was used again."""
    result = generate(session, prompt, GenerateOptions(budget))
    assert result.token_ids == cold(session.decoder, prompt, budget)
    assert result.reused_tokens + result.computed_tokens == result.prompt_tokens == len(prompt)
    return result.reused_tokens


def changed(prompt: Prompt, position: int, injected: bool = False) -> Prompt:
    """The prompt with another id, or another row, at a position."""
    ids, injection = list(prompt.token_ids), prompt.injection
    if not injected:
        ids[position] = (ids[position] + 1) % ENDLESS.vocab_size
        return Prompt(ids, injection)
    assert injection is not None
    values = injection.values.copy()
    values[list(injection.positions).index(position), -1] += 1e-3
    return Prompt(ids, Injection(values, injection.positions))


# -- how much is used again ------------------------------------------------------------------------


def test_the_same_prompt_computes_one_row(runs_on: Decoder):
    session, prompt = runs_on.new_session(), random_prompt(40, range(10, 30))
    assert reused(session, prompt) == 0
    assert reused(session, prompt) == 39


def test_a_prompt_of_one_token_is_always_computed(runs_on: Decoder):
    session = runs_on.new_session()
    for _ in range(3):
        assert reused(session, Prompt([7])) == 0


def test_the_rows_that_are_computed_are_those_that_are_new():
    runs_on, script = scripted([9] * 100, prompt=5)
    session = runs_on.new_session()
    generate(session, Prompt([1, 2, 3, 4, 5]), GenerateOptions(3))
    generate(session, Prompt([1, 2, 3, 4, 6]), GenerateOptions(1))
    generate(session, Prompt([1, 2, 7, 4, 6]), GenerateOptions(1))
    assert script.rows == [5, 1, 1, 1, 3]


def test_a_prompt_that_goes_on_behind_the_answer_computes_what_is_new(runs_on: Decoder):
    """The next turn of a chat: prompt, answer, and more. The answer's last id is not cached."""
    session, prompt = runs_on.new_session(), random_prompt(30)
    answer = cold(runs_on, prompt)
    assert reused(session, prompt) == 0
    assert reused(session, Prompt([*prompt.token_ids, *answer, 3, 4])) == 30 + len(answer) - 1


@pytest.mark.parametrize("position", [0, 1, 19, 38, 39])
def test_a_changed_id_is_computed_from_there(runs_on: Decoder, position: int):
    session, prompt = runs_on.new_session(), random_prompt(40, range(20, 30))
    reused(session, prompt)
    assert reused(session, changed(prompt, position)) == min(position, 39)


@pytest.mark.parametrize("position", [0, 12, 29, 39])
def test_a_changed_row_is_computed_from_there(runs_on: Decoder, position: int):
    session, prompt = runs_on.new_session(), random_prompt(40, [0, *range(10, 30), 39])
    reused(session, prompt)
    assert reused(session, changed(prompt, position, injected=True)) == position


def test_equal_lengths_and_positions_of_other_audio_share_what_lies_before(runs_on: Decoder):
    session = runs_on.new_session()
    first = random_prompt(40, range(9, 39))
    assert first.injection is not None
    other = Prompt(first.token_ids, Injection(-first.injection.values, first.injection.positions))
    assert reused(session, first) == 0
    assert reused(session, other) == 9


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ([5, 6, 7], [5, 6], 7),  # a row less
        ([5, 6], [5, 6, 7], 7),  # one more
        ([5, 6, 9], [5, 7, 9], 6),  # one elsewhere
        ([], [3], 3),
        ([3], [], 3),
        ([0], [], 0),
    ],
)
def test_rows_that_come_and_go(runs_on: Decoder, before: list[int], after: list[int], kept: int):
    rows = np.random.default_rng(0).normal(0, 0.3, (20, ENDLESS.hidden_size)).astype(np.float32)
    ids = list(range(100, 120))
    session = runs_on.new_session()
    assert reused(session, Prompt(ids, Injection(rows[before], before))) == 0
    assert reused(session, Prompt(ids, Injection(rows[after], after))) == kept


def test_shorter_and_longer_prompts_in_turn(runs_on: Decoder):
    session, ids = runs_on.new_session(), list(random_prompt(700).token_ids)
    found = [reused(session, Prompt(ids[:n])) for n in (300, 301, 299, 600, 600, 2, 513, 512)]
    assert found == [0, 300, 298, 299, 599, 1, 2, 511]


def test_rows_given_in_any_order_are_the_same_prompt(runs_on: Decoder):
    session, prompt = runs_on.new_session(), random_prompt(20, range(5, 15))
    assert prompt.injection is not None
    back = Injection(prompt.injection.values[::-1], list(range(14, 4, -1)))
    reused(session, prompt)
    assert reused(session, Prompt(prompt.token_ids, back)) == 19


def test_rows_that_the_caller_changes_later_change_nothing(runs_on: Decoder):
    session, prompt = runs_on.new_session(), random_prompt(20, range(5, 15))
    assert prompt.injection is not None
    reused(session, prompt)
    prompt.injection.values[3] += 1
    assert reused(session, prompt) == 8


# -- promises --------------------------------------------------------------------------------------


def test_a_promise_that_holds_is_kept(runs_on: Decoder):
    session, prompt = runs_on.new_session(), random_prompt(30, range(5, 25))
    generate(session, prompt, GenerateOptions(4))
    for promised in (
        0,
        1,
        29,
        30,
    ):  # with all promised, one row is computed all the same
        result = generate(session, prompt, GenerateOptions(4, cached_prefix=promised))
        assert result.reused_tokens == 29
        assert result.token_ids == cold(runs_on, prompt, 4)


@pytest.mark.parametrize("promised", [12, 30, 31, -1])
def test_a_wrong_promise_is_an_error_and_not_an_answer(runs_on: Decoder, promised: int):
    session, prompt = runs_on.new_session(), random_prompt(30, range(5, 25))
    generate(session, changed(prompt, 11, injected=True), GenerateOptions(4))
    length = session.length
    with pytest.raises(RequestError, match=rf"^{promised} cached .* 30 tokens .* first 11 in"):
        generate(session, prompt, GenerateOptions(4, cached_prefix=promised))
    assert session.length == length
    assert reused(session, prompt, 4) == 11


def test_a_promise_to_a_new_session_does_not_hold(runs_on: Decoder):
    with pytest.raises(RequestError, match="first 0 in common"):
        generate(runs_on.new_session(), random_prompt(30), GenerateOptions(4, cached_prefix=5))


# -- what must not spoil it ------------------------------------------------------------------------


def test_growth_of_a_bucket_keeps_what_is_used_again(runs_on: Decoder):
    session, ids = runs_on.new_session(), list(random_prompt(1500).token_ids)
    for length, kept in ((500, 0), (520, 500), (1030, 520), (1500, 1030)):
        assert reused(session, Prompt(ids[:length])) == kept
        assert session.capacity == -(-length // 512) * 512


def test_two_streams_in_turn_on_one_decoder_keep_their_own_prefixes(runs_on: Decoder):
    sessions = [runs_on.new_session() for _ in range(2)]
    ids = [list(random_prompt(300, seed=seed).token_ids) for seed in (1, 2)]
    for length in range(50, 300, 50):
        for session, mine in zip(sessions, ids, strict=True):
            assert reused(session, Prompt(mine[:length])) == length - 50


def test_a_clone_reuses_what_it_was_cloned_with(runs_on: Decoder):
    session, prompt = runs_on.new_session(), random_prompt(40, range(10, 30))
    reused(session, prompt)
    twin = session.clone()
    assert reused(session, changed(prompt, 5)) == 5
    assert reused(twin, changed(prompt, 20, injected=True)) == 20
    assert reused(session, changed(prompt, 5)) == 39


def test_a_clone_and_its_original_remember_their_own_rows(runs_on: Decoder):
    """Both go on from a cut, where there is room behind the rows that they share."""
    session, prompt = runs_on.new_session(), random_prompt(40, range(10, 30))
    reused(session, prompt)
    session.truncate(20)
    twin = session.clone()
    other = changed(prompt, 20, injected=True)
    assert reused(session, prompt) == 20
    assert reused(twin, other) == 20
    assert reused(session, prompt) == 39
    assert reused(twin, other) == 39


def test_a_truncated_session_reuses_what_is_left(runs_on: Decoder):
    session, prompt = runs_on.new_session(), random_prompt(40, range(10, 30))
    reused(session, prompt)
    session.truncate(17)
    assert reused(session, prompt) == 17
    with pytest.raises(RequestError, match="of 45 positions cannot be truncated to 46"):
        session.truncate(46)


@pytest.mark.parametrize("tokens", [0, 1, 4])
def test_a_cancelled_answer_leaves_a_true_cache(runs_on: Decoder, tokens: int):
    session, prompt, seen = runs_on.new_session(), random_prompt(400, range(10, 300)), []
    options = GenerateOptions(20, on_token=seen.append, should_cancel=lambda: len(seen) >= tokens)
    result = generate(session, prompt, options)
    assert result.finish_reason == "cancelled"
    assert not result.timed_out
    assert list(result.token_ids) == seen == list(cold(runs_on, prompt, 20)[:tokens])
    assert reused(session, prompt) == (399 if tokens else 0)


def test_a_prefill_cancelled_between_blocks_is_gone_on_with(runs_on: Decoder):
    session, prompt, asked = runs_on.new_session(), random_prompt(600), []
    options = GenerateOptions(5, should_cancel=lambda: asked.append(0) or len(asked) == 2)
    assert generate(session, prompt, options).token_ids == ()
    assert session.length == 256
    assert reused(session, prompt) == 256


def test_a_callback_that_raises_leaves_a_true_cache(runs_on: Decoder):
    session, prompt, seen = runs_on.new_session(), random_prompt(30), []

    def on_token(token: int) -> None:
        seen.append(token)
        if len(seen) == 3:
            raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="own"):
        generate(session, prompt, GenerateOptions(9, on_token=on_token))
    assert seen == list(cold(runs_on, prompt, 3))
    assert reused(session, Prompt([*prompt.token_ids, *seen, 8])) == 32


def test_an_answer_that_does_not_fit_leaves_its_prefix():
    page = decoder(ENDLESS).new_cache().page_bytes
    runs_on = decoder(ENDLESS, memory_limit_bytes=page)
    session, prompt = runs_on.new_session(), random_prompt(508, range(9))
    with pytest.raises(CapacityError, match="513 positions"):
        generate(session, prompt, GenerateOptions(20))
    assert reused(session, prompt, 5) == 507


def poisoned() -> Decoder:
    """A decoder to which token 17 is poison: its value overflows the f16 cache, and no other's."""
    tensors = random_tensors(ENDLESS)
    embedding = tensors["model.embed_tokens.weight"]
    embedding[:, 0], embedding[17] = 0, 0
    embedding[17, 0] = 1
    tensors["model.layers.0.self_attn.v_proj.weight"][0, 0] = 1e5
    return decoder(ENDLESS, tensors, kv="f16")


def test_a_nan_leaves_a_session_that_can_be_used():
    runs_on = poisoned()
    session, ids = runs_on.new_session(), list(range(100, 140))
    bad = Prompt([*ids[:30], 17, *ids[31:]])
    for _ in range(2):  # the second time from a cache that holds the poison: again an error
        with pytest.raises(NumericError, match="new token 0 "):
            generate(session, bad, GenerateOptions(3))
    assert session.length == 40
    assert reused(session, Prompt(ids)) == 30


def test_a_wall_clock_limit_returns_what_is_there(runs_on: Decoder):
    result = generate(
        runs_on.new_session(), random_prompt(20), GenerateOptions(3000, max_seconds=0.02)
    )
    assert (result.finish_reason, result.timed_out) == ("cancelled", True)
    assert 0 < len(result.token_ids) < 3000
    for limit in (0, -1, float("nan"), float("inf")):
        with pytest.raises(RequestError, match="max_seconds"):
            GenerateOptions(1, max_seconds=limit)


def test_logprobs_are_those_of_the_logits(runs_on: Decoder):
    prompt = random_prompt(20, range(3))
    result = generate(runs_on.new_session(), prompt, GenerateOptions(12, logprobs=True))
    assert result.token_ids == cold(runs_on, prompt, 12)
    whole = Prompt([*prompt.token_ids, *result.token_ids[:-1]], prompt.injection)
    rows = np.arange(19, 31, dtype=np.int32)
    logits = runs_on.new_session().prefill(checked(whole), rows, "logits").astype(np.float64)
    expected = logits.max(axis=1) - np.log(np.exp(logits).sum(axis=1))
    assert result.logprobs is not None
    assert np.allclose(result.logprobs, expected, atol=1e-5)
    assert cold(runs_on, prompt) == result.token_ids[:6]


def test_stale_nan_in_unused_slots_reaches_no_answer():
    """What a sequence left behind the length is never read, whatever it is."""
    runs_on = poisoned()
    session = runs_on.new_session()
    with pytest.raises(NumericError):
        generate(session, Prompt([17] * 520), GenerateOptions(1))
    for length in (1, 40, 300):
        assert reused(session, Prompt(list(range(100, 100 + length)))) < length


@pytest.mark.parametrize("draft", [(), (1, 2)])
def test_another_answer_in_the_same_session_is_an_error_and_not_a_wrong_answer(runs_on, draft):
    session, prompt, other = runs_on.new_session(), random_prompt(20), random_prompt(40, seed=9)

    def on_token(token: int) -> None:
        assert generate(session, other, GenerateOptions(8)).token_ids == cold(runs_on, other, 8)

    with pytest.raises(RequestError, match="began another answer when this one had 1 ids"):
        generate(session, prompt, GenerateOptions(8, on_token=on_token, draft_ids=draft))
    reused(session, prompt)


def test_of_two_batches_on_one_session_the_later_has_it(runs_on):
    session, prompts = runs_on.new_session(), [random_prompt(20, seed=s) for s in (0, 4)]
    batches = [Batch(runs_on), Batch(runs_on)]
    first, second = [
        b.join(session, p, GenerateOptions(8)) for b, p in zip(batches, prompts, strict=True)
    ]
    while any(map(len, batches)):
        for batch in batches:
            batch.step()
    with pytest.raises(RequestError, match="began another answer"):
        first.result()
    assert second.result().token_ids == cold(runs_on, prompts[1], 8)


@pytest.mark.parametrize("count", [2.5, "5", True, None])
def test_a_budget_that_is_no_whole_number_is_refused(count):
    with pytest.raises(RequestError, match="max_new_tokens must be a whole number"):
        GenerateOptions(count)
