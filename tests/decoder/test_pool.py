"""Sessions that are kept: who gets which, and how many remain."""

from __future__ import annotations

import pytest

from decoder.tiny import SPEC, decoder
from stapes.decoder import Decoder, GenerateOptions, Prompt, Session, SessionPool, generate

ASKED = GenerateOptions(4)


@pytest.fixture(scope="module")
def runs_on() -> Decoder:
    return decoder(SPEC, weights="f32", kv="f32")


def answered(pool: SessionPool, ids: list[int]) -> tuple[Session, int]:
    """A session after an answer, back in the pool; how many ids of the prompt it had already."""
    session = pool.take(Prompt(ids))
    reused = generate(session, Prompt(ids), ASKED).reused_tokens
    pool.give(session)
    return session, reused


def test_a_prompt_gets_the_session_that_begins_like_it(runs_on: Decoder):
    pool = SessionPool(runs_on, 4)
    first, _ = answered(pool, list(range(40)))
    second, reused = answered(pool, list(range(100, 140)))
    assert (second is first, reused) == (False, 0)
    again, reused = answered(pool, [*range(40), 7, 8, 9])
    assert again is first
    assert reused == 40


def test_little_in_common_does_not_spoil_what_another_chat_has(runs_on: Decoder):
    pool = SessionPool(runs_on, 4)
    first, _ = answered(pool, list(range(40)))
    second, _ = answered(pool, [0, 1, 2, *range(200, 240)])
    assert second is not first


def test_the_oldest_goes_first_and_no_more_than_asked_for_are_kept(runs_on: Decoder):
    pool = SessionPool(runs_on, 2)
    first, _ = answered(pool, list(range(40)))
    second, _ = answered(pool, list(range(100, 140)))
    third, _ = answered(pool, list(range(200, 240)))
    assert third is first
    assert second is not first
    taken = [pool.take(Prompt([number])) for number in range(5)]
    assert len({id(session) for session in taken}) == 5
    for session in taken:
        pool.give(session)
    assert len(pool) == 2


def test_bytes_are_limited(runs_on: Decoder):
    page = runs_on.new_cache().page_bytes
    pool = SessionPool(runs_on, 8, 2 * page)
    for start in (0, 100, 200, 300):
        answered(pool, list(range(start, start + 40)))
    assert len(pool) == 2
    assert pool.held_bytes == 2 * page


def test_the_answer_does_not_depend_on_the_session(runs_on: Decoder):
    pool = SessionPool(runs_on, 2)
    for ids in ([*range(40)], [*range(30), 90, 91], [*range(100, 130)], [*range(40), 3]):
        session = pool.take(Prompt(ids))
        alone = generate(runs_on.new_session(), Prompt(ids), ASKED)
        assert generate(session, Prompt(ids), ASKED) == alone
        pool.give(session)
