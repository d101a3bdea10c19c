"""Answers restricted to ranges of ids by the core: greedy and sampled, alone and in batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decoder.tiny import SPEC, all_logits, decoder, random_prompt, random_tensors, reference
from stapes.decoder import Batch, GenerateOptions, GenerateResult, SamplingOptions, generate
from stapes.decoder.decoder import Decoder
from stapes.decoder.prompt import check_ranges
from stapes.errors import NumericError, RequestError

ENDLESS = replace(SPEC, eos_token_ids=frozenset())
RANGES = ((20, 31), (7, 9), (40, 41))
ALLOWED = {7, 8, *range(20, 31), 40}
PROMPT = random_prompt(15, [2, 3])


@pytest.fixture(scope="module")
def tiny() -> Decoder:
    return decoder(ENDLESS)


def asked(sampled: bool, seed: int = 3, **more) -> GenerateOptions:
    sampling = SamplingOptions(seed=seed, repetition_penalty=1.1, top_k=9) if sampled else None
    return GenerateOptions(24, sampling=sampling, **more)


def answer(decoder: Decoder, options: GenerateOptions) -> GenerateResult:
    return generate(decoder.new_session(), PROMPT, options)


@pytest.mark.parametrize("sampled", [False, True])
def test_only_allowed_ids_come(tiny, sampled):
    free = answer(tiny, asked(sampled)).token_ids
    kept = answer(tiny, asked(sampled, allowed_ids=RANGES)).token_ids
    assert len(kept) == 24
    assert set(kept) <= ALLOWED
    assert len(set(kept)) > 3 if sampled else kept
    assert not set(free) <= ALLOWED


def test_each_greedy_id_is_the_likeliest_of_the_allowed(tiny):
    ids = answer(tiny, asked(False, allowed_ids=RANGES)).token_ids
    whole = replace(PROMPT, token_ids=[*PROMPT.token_ids, *ids[:-1]])
    rows = all_logits(tiny, whole)[len(PROMPT) - 1 :]
    allowed = sorted(ALLOWED)
    assert [allowed[row[allowed].argmax()] for row in rows] == list(ids)


@pytest.mark.parametrize("sampled", [False, True])
def test_everything_allowed_is_nothing_restricted(tiny, sampled):
    whole = asked(sampled, allowed_ids=[(0, 100), (100, ENDLESS.vocab_size)])
    assert answer(tiny, whole) == answer(tiny, asked(sampled))


@pytest.mark.parametrize("sampled", [False, True])
def test_the_reference_gives_the_same(tiny, sampled):
    twin = decoder(ENDLESS, make_executor=reference)
    options = asked(sampled, allowed_ids=RANGES)
    assert answer(twin, options).token_ids == answer(tiny, options).token_ids


def test_restricted_and_free_answers_side_by_side(tiny):
    asked_for = [
        asked(True, 1, allowed_ids=RANGES),
        asked(True, 2),
        asked(False, allowed_ids=[(50, 60)]),
        asked(False),
        asked(True, 1, allowed_ids=RANGES, draft_ids=[7, 8, 300, 21]),
    ]
    batch = Batch(tiny)
    joined = [batch.join(tiny.new_session(), PROMPT, options) for options in asked_for]
    batch.run()
    for generation, options in zip(joined, asked_for, strict=True):
        assert generation.result() == answer(tiny, options)


@pytest.mark.parametrize("sampled", [False, True])
def test_a_draft_changes_nothing(tiny, sampled):
    plain = answer(tiny, asked(sampled, allowed_ids=RANGES))
    for draft in (plain.token_ids, (*plain.token_ids[:5], 300, 301), (300,)):
        drafted = answer(tiny, asked(sampled, allowed_ids=RANGES, draft_ids=draft))
        assert drafted.token_ids == plain.token_ids
    assert answer(tiny, asked(sampled, allowed_ids=RANGES, draft_ids=plain.token_ids))


def test_log_probabilities_are_those_among_the_allowed(tiny):
    one = answer(tiny, asked(False, allowed_ids=[(9, 10)], logprobs=True))
    assert set(one.token_ids) == {9}
    assert one.logprobs == (0.0,) * 24


def test_an_end_among_the_allowed_ends_the_answer():
    ends = decoder(replace(SPEC, eos_token_ids=frozenset({30})))
    ended = answer(ends, asked(True, allowed_ids=RANGES))
    assert ended.finish_reason == "stop"
    assert set(ended.token_ids) <= ALLOWED - {30}
    least = SamplingOptions(seed=3, min_new_tokens=20)
    longer = answer(ends, GenerateOptions(24, sampling=least, allowed_ids=[(29, 31)]))
    assert longer.token_ids[:20] == (29,) * 20


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_nan_outside_the_ranges_is_still_an_error(sign, sampled):
    """Two inputs of the head are infinite: inf + inf for 511 ids, inf - inf for one (or not)."""
    untied = replace(ENDLESS, tie_word_embeddings=False)
    tensors = random_tensors(untied)
    huge = np.float32(3e38)
    tensors["model.norm.weight"][:2] = huge
    tensors["lm_head.weight"][:, :2] = huge, sign * huge
    tensors["lm_head.weight"][200, 1] *= -1
    broken = decoder(untied, tensors)
    logits = all_logits(broken, PROMPT)[-1]
    assert np.isnan(logits).sum() in (1, 511)
    assert np.isnan(logits[200]) == (np.isnan(logits).sum() == 1)
    with pytest.raises(NumericError, match="new token 0 hold a NaN"):
        answer(broken, asked(sampled, allowed_ids=RANGES))


def test_ranges_are_sorted_and_joined():
    joined = check_ranges([(5, 6), (0, 2), (2, 3), (6, 8), (10, 12)], 12)
    assert joined.tolist() == [[0, 3], [5, 8], [10, 12]]
    assert joined.dtype == np.int32


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([], "at least one"),
        ([1, 2], "pairs of whole numbers"),
        ([(0.0, 3.0)], "pairs of whole numbers"),
        ([(4, 4)], "4 to 4 .* empty or outside the 512"),
        ([(0, 513)], "0 to 513"),
        ([(-1, 3)], "-1 to 3"),
        ([(0, 9), (3, 5), (7, 12)], "3 ranges .* overlap"),
    ],
)
def test_wrong_ranges(tiny, ranges, message):
    with pytest.raises(RequestError, match=message):
        answer(tiny, asked(False, allowed_ids=ranges))
