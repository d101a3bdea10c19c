"""Batches: answers that join, leave and fail side by side are each what they are alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from decoder.tiny import SPEC, decoder, native, random_prompt, random_tensors
from stapes.decoder import (
    Batch,
    Decoder,
    GenerateOptions,
    Generation,
    Prompt,
    SamplingOptions,
    generate,
)
from stapes.errors import CapacityError, NumericError, RequestError

ENDLESS = replace(SPEC, eos_token_ids=frozenset())


@pytest.fixture(scope="module", params=["f32", "q8"])
def runs_on(request: pytest.FixtureRequest) -> Decoder:
    return decoder(ENDLESS, weights=request.param, kv="f16", make_executor=native(2))


def prompts(count: int) -> list[Prompt]:
    """Short and long ones, some over a prefill's block, some over a bucket."""
    lengths = [3, 40, 300, 1, 530, 90, 17, 256]
    return [
        random_prompt(lengths[i % 8], range(lengths[i % 8] // 3, lengths[i % 8] // 2), seed=i)
        for i in range(count)
    ]


def options(number: int) -> GenerateOptions:
    """Greedy and sampled ones, with and without log-probabilities, of different lengths."""
    sampling = SamplingOptions(0.9, top_k=30, seed=number) if number % 3 == 1 else None
    return GenerateOptions(5 + 3 * (number % 5), sampling=sampling, logprobs=number % 4 == 2)


def alone(runs_on: Decoder, prompt: Prompt, chosen: GenerateOptions) -> Any:
    return generate(runs_on.new_session(), prompt, chosen)


def joined(batch: Batch, prompt: Prompt, chosen: GenerateOptions) -> Generation:
    return batch.join(batch.decoder.new_session(), prompt, chosen)


@pytest.mark.parametrize("max_rows", [1, 3, 64, 256, 4000])
def test_answers_side_by_side_are_each_alone(runs_on: Decoder, max_rows: int):
    batch = Batch(runs_on, max_rows)
    answers = [joined(batch, prompt, options(i)) for i, prompt in enumerate(prompts(8))]
    assert len(batch) == 8
    batch.run()
    assert len(batch) == 0
    results = [answer.result() for answer in answers]
    assert results == [alone(runs_on, p, options(i)) for i, p in enumerate(prompts(8))]
    assert len({result.token_ids for result in results}) == 8


def test_who_joins_later_is_served_and_who_is_done_leaves(runs_on: Decoder):
    batch, waiting, answers = Batch(runs_on, 64), prompts(8), []
    left: list[Generation] = []
    while waiting or len(batch):
        if waiting and len(batch) < 3:
            answers.append(joined(batch, waiting.pop(0), options(len(answers))))
        left += batch.step()
    assert sorted(map(id, left)) == sorted(map(id, answers))
    for i, answer in enumerate(answers):
        assert answer.result() == alone(runs_on, prompts(8)[i], options(i))


def test_decoding_goes_on_while_a_long_prompt_is_read(runs_on: Decoder):
    batch, seen = Batch(runs_on, 64), []
    first = joined(batch, random_prompt(3), GenerateOptions(30, on_token=seen.append))
    batch.step()
    long = joined(batch, random_prompt(500), GenerateOptions(3))
    for _ in range(5):
        batch.step()
    assert len(seen) == 6
    assert not long.prefilled
    batch.run()
    assert (
        first.result().token_ids == alone(runs_on, random_prompt(3), GenerateOptions(30)).token_ids
    )
    assert long.result() == alone(runs_on, random_prompt(500), GenerateOptions(3))


def test_no_more_rows_run_than_were_allowed(runs_on: Decoder, monkeypatch: pytest.MonkeyPatch):
    sizes, run = [], runs_on.run
    monkeypatch.setattr(
        runs_on, "run", lambda ids, *rest: (sizes.append(ids.size), run(ids, *rest))[1]
    )
    batch = Batch(runs_on, 50)
    for prompt in prompts(8):
        joined(batch, prompt, GenerateOptions(4))
    batch.run()
    assert max(sizes) == 50
    assert sum(sizes) == sum(len(prompt) + 3 for prompt in prompts(8))


def test_drafts_and_reuse_work_in_a_batch(runs_on: Decoder):
    prompt = random_prompt(60, range(10, 40))
    expected = alone(runs_on, prompt, GenerateOptions(20))
    session, batch = runs_on.new_session(), Batch(runs_on)
    generate(session, prompt, GenerateOptions(2))
    guess = [*expected.token_ids[:12], 3]
    answer = batch.join(session, prompt, GenerateOptions(20, draft_ids=guess))
    other = joined(batch, random_prompt(9), GenerateOptions(9))
    batch.run()
    assert answer.result() == expected
    assert (answer.result().reused_tokens, answer.result().draft_accepted) == (59, 12)
    assert other.result() == alone(runs_on, random_prompt(9), GenerateOptions(9))


# -- leaving and failing ---------------------------------------------------------------------------


def test_cancelling_one_harms_no_other(runs_on: Decoder):
    batch = Batch(runs_on)
    seen: list[int] = []
    stopped = joined(
        batch,
        random_prompt(20, seed=1),
        GenerateOptions(30, on_token=seen.append, should_cancel=lambda: len(seen) == 4),
    )
    leaving = joined(batch, random_prompt(20, seed=2), GenerateOptions(30))
    staying = joined(batch, random_prompt(20, seed=3), GenerateOptions(30))
    for _ in range(3):
        batch.step()
    batch.leave(leaving)
    assert len(batch) == 2
    batch.run()
    batch.leave(leaving)
    for answer, seed, count in ((stopped, 1, 4), (leaving, 2, 3), (staying, 3, 30)):
        whole = alone(runs_on, random_prompt(20, seed=seed), GenerateOptions(30)).token_ids
        assert answer.result().token_ids == whole[:count]
        assert answer.result().finish_reason == ("length" if count == 30 else "cancelled")


def test_a_session_that_left_can_be_used_again(runs_on: Decoder):
    batch, session = Batch(runs_on), runs_on.new_session()
    answer = batch.join(session, random_prompt(400), GenerateOptions(9))
    batch.step()
    batch.leave(answer)
    result = generate(session, random_prompt(400), GenerateOptions(9))
    assert result.reused_tokens == 256
    assert result == alone(runs_on, random_prompt(400), GenerateOptions(9))


def test_a_callback_that_raises_ends_its_own_answer(runs_on: Decoder):
    batch = Batch(runs_on)

    def on_token(token: int) -> None:
        raise LookupError(f"no use for {token}")

    bad = joined(batch, random_prompt(5), GenerateOptions(9, on_token=on_token))
    good = joined(batch, random_prompt(6), GenerateOptions(9))
    batch.run()
    with pytest.raises(LookupError, match="no use for"):
        bad.result()
    assert good.result() == alone(runs_on, random_prompt(6), GenerateOptions(9))


def test_a_cache_that_does_not_fit_ends_its_own_answer():
    page = decoder(ENDLESS).new_cache().page_bytes
    runs_on = decoder(ENDLESS, memory_limit_bytes=page)
    batch = Batch(runs_on)
    large = joined(batch, random_prompt(600), GenerateOptions(3))
    growing = joined(batch, random_prompt(508), GenerateOptions(9))
    good = joined(batch, random_prompt(20), GenerateOptions(9))
    batch.run()
    with pytest.raises(CapacityError, match="600 positions"):
        large.result()
    with pytest.raises(CapacityError, match="513 positions"):
        growing.result()
    assert growing.token_ids == list(
        alone(runs_on, random_prompt(508), GenerateOptions(5)).token_ids
    )
    assert good.result() == alone(runs_on, random_prompt(20), GenerateOptions(9))


def test_a_nan_ends_its_own_answer():
    tensors = random_tensors(ENDLESS)
    tensors["model.layers.0.mlp.down_proj.weight"] *= 1e18
    tensors["model.layers.0.mlp.up_proj.weight"] *= 1e18
    runs_on = decoder(ENDLESS, tensors)
    batch = Batch(runs_on)
    bad = [joined(batch, random_prompt(n), GenerateOptions(9)) for n in (5, 6)]
    batch.run()
    for answer in bad:
        with pytest.raises(NumericError, match="new token 0 "):
            answer.result()


class Failing:
    """An executor that fails when a row has a certain id."""

    def __init__(self, plan: Any) -> None:
        self.inner = native()(plan)
        self.plan = plan
        self.new_cache = self.inner.new_cache

    def run(self, inputs: Any, caches: Any) -> Any:
        if (inputs["ids"] == 13).any():
            raise MemoryError
        return self.inner.run(inputs, caches)


def test_a_run_that_fails_is_run_again_one_by_one():
    runs_on = decoder(ENDLESS, make_executor=Failing)
    batch = Batch(runs_on)
    good = [joined(batch, Prompt([i, i + 1]), GenerateOptions(2)) for i in (1, 20, 30)]
    bad = joined(batch, Prompt([13, 1]), GenerateOptions(2))
    batch.run()
    with pytest.raises(MemoryError):
        bad.result()
    fresh = decoder(ENDLESS)
    for answer, first in zip(good, (1, 20, 30), strict=True):
        expected = generate(fresh.new_session(), Prompt([first, first + 1]), GenerateOptions(2))
        assert 13 not in expected.token_ids
        assert answer.result() == expected


def test_what_cannot_join_is_refused_and_changes_nothing(runs_on: Decoder):
    batch, session = Batch(runs_on), runs_on.new_session()
    answer = batch.join(session, random_prompt(5), GenerateOptions(3))
    with pytest.raises(RequestError, match="already"):
        batch.join(session, random_prompt(6), GenerateOptions(3))
    with pytest.raises(RequestError, match="another decoder"):
        batch.join(decoder(ENDLESS).new_session(), random_prompt(6), GenerateOptions(3))
    with pytest.raises(RequestError, match="empty"):
        joined(batch, Prompt([]), GenerateOptions(3))
    with pytest.raises(RequestError, match="max_rows"):
        Batch(runs_on, 0)
    with pytest.raises(RequestError, match="not finished: 0 ids"):
        answer.result()
    batch.run()
    assert answer.result() == alone(runs_on, random_prompt(5), GenerateOptions(3))


def test_an_empty_batch_does_nothing(runs_on: Decoder):
    batch = Batch(runs_on)
    assert batch.step() == []
    batch.run()
