"""Sessions: however a prompt is cut, shared, interleaved or grown, results are the same bits."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import numpy as np
import pytest

from decoder.tiny import (
    SPEC,
    all_logits,
    checked,
    decoder,
    native,
    random_prompt,
    stepped_logits,
    successor_decoder,
)
from stapes.decoder import Decoder, GenerateOptions, Injection, Prompt, Session, generate
from stapes.decoder.prompt import CheckedPrompt
from stapes.errors import CapacityError

ENDLESS = replace(SPEC, eos_token_ids=frozenset())
PAGE = (
    2 * 2 * 2 * 32 * 512
)  # elements of one bucket: k and v, layers, kv heads, head_dim, positions


@pytest.fixture(scope="module")
def runs_on() -> Decoder:
    return decoder(ENDLESS)


def last_logits(session: Session, prompt: Prompt) -> np.ndarray:
    return np.asarray(session.prefill(checked(prompt), want="logits"))[0]


def read(runs_on: Decoder, prompt: Prompt) -> Session:
    session = runs_on.new_session()
    session.prefill(checked(prompt))
    return session


def cut(prompt: Prompt, ends: Sequence[int]) -> list[CheckedPrompt]:
    """A prompt in pieces that end at these positions."""
    whole = checked(prompt)
    pieces, start = [], 0
    for end in [*ends, len(whole)]:
        inside = (whole.index >= start) & (whole.index < end)
        index = whole.index[inside] - np.int32(start)
        pieces.append(CheckedPrompt(whole.ids[start:end], whole.values[inside], index))
        start = end
    return pieces


# -- prefill equals steps ------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 5, 200])
@pytest.mark.parametrize("kv", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("weights", ["f32", "bf16", "q8"])
def test_prefill_and_a_step_equal_the_whole_prefill(length: int, kv: str, weights: str):
    runs_on = decoder(ENDLESS, weights=weights, kv=kv)
    injected = range(length // 3, 2 * length // 3)
    prompt = random_prompt(length + 1, injected)
    expected = last_logits(runs_on.new_session(), prompt)
    session = runs_on.new_session()
    session.prefill(cut(prompt, [length])[0])
    assert np.array_equal(session.step(prompt.token_ids[-1], "logits")[0], expected)


@pytest.mark.parametrize("weights", ["f32", "q8"])
def test_a_prefill_equals_single_steps_at_every_row(weights: str):
    runs_on = decoder(ENDLESS, weights=weights, kv="f16")
    prompt = random_prompt(90, [0, 1, *range(30, 60), 89])
    assert np.array_equal(all_logits(runs_on, prompt), stepped_logits(runs_on, prompt))


@pytest.mark.parametrize("length", [255, 256, 257, 512, 513])
def test_blocks_of_a_prefill_leave_no_trace(runs_on: Decoder, length: int):
    """Injected rows cross the borders of the blocks; pieces of other sizes give the same."""
    prompt = random_prompt(length, [*range(200, length - 3), length - 1])
    whole = all_logits(runs_on, prompt)
    assert whole.shape == (length, 512)
    for ends in ([1], [100, 101], [250], list(range(37, length, 37))):
        session = runs_on.new_session()
        parts = [
            session.prefill(piece, np.arange(len(piece), dtype=np.int32), "logits")
            for piece in cut(prompt, ends)
        ]
        assert np.array_equal(np.concatenate(parts), whole)


def test_logits_come_for_the_picked_rows_alone(runs_on: Decoder):
    prompt = random_prompt(520, range(250, 260))
    whole = all_logits(runs_on, prompt)
    for rows in ([0], [255, 256], [3, 511, 512, 519], list(range(519)), []):
        picked = np.array(rows, np.int32)
        found = runs_on.new_session().prefill(checked(prompt), picked, "logits")
        assert np.array_equal(found, whole[picked])
        ids = runs_on.new_session().prefill(checked(prompt), picked)
        assert np.array_equal(ids, whole[picked].argmax(axis=1))


def test_any_number_of_threads_gives_the_same_bits():
    prompt = random_prompt(300, range(100, 200))
    logits = [
        all_logits(decoder(ENDLESS, weights=w, make_executor=native(threads)), prompt)
        for w in ("f32", "q8")
        for threads in (1, 2, 3)
    ]
    for found, expected in zip(logits, [logits[0]] * 3 + [logits[3]] * 3, strict=True):
        assert np.array_equal(found, expected)


def test_injected_rows_count_and_the_ids_below_them_do_not(runs_on: Decoder):
    prompt = random_prompt(20, range(5, 15))
    other = Prompt([*prompt.token_ids[:5], *[7] * 10, *prompt.token_ids[15:]], prompt.injection)
    assert np.array_equal(all_logits(runs_on, prompt), all_logits(runs_on, other))
    plain = Prompt(prompt.token_ids)
    assert not np.array_equal(all_logits(runs_on, prompt)[5:], all_logits(runs_on, plain)[5:])


# -- the cache -----------------------------------------------------------------------------------


def test_growth_keeps_what_the_cache_holds(runs_on: Decoder):
    prompt = random_prompt(1100, range(505, 520))
    whole = all_logits(runs_on, prompt)
    session = runs_on.new_session()
    assert (session.length, session.capacity) == (0, 0)
    session.prefill(cut(prompt, [510])[0])
    assert (session.length, session.capacity) == (510, 512)
    pieces = cut(prompt, [510, 512, 515])
    for piece, position in ((pieces[1], 511), (pieces[2], 514)):
        assert np.array_equal(session.prefill(piece, want="logits")[0], whole[position])
    assert (session.length, session.capacity) == (515, 1024)
    rest = cut(prompt, [515])[1]
    assert np.array_equal(session.prefill(rest, want="logits")[0], whole[-1])
    assert session.capacity == 1536


def test_an_answer_may_cross_a_bucket(runs_on: Decoder):
    prompt = random_prompt(505)
    ids = generate(runs_on.new_session(), prompt, GenerateOptions(20)).token_ids
    assert len(set(ids)) > 5
    whole = Prompt([*prompt.token_ids, *ids[:-1]])
    assert all_logits(runs_on, whole)[504:].argmax(axis=1).tolist() == list(ids)


def test_prompts_in_turn_in_one_session_are_each_as_if_alone(runs_on: Decoder):
    """The same again, one token more, one less, another first token, other audio, one token."""
    prompt = random_prompt(60, range(20, 40))
    ids = list(prompt.token_ids)
    more, less = Prompt([*ids, 5], prompt.injection), Prompt(ids[:-1], prompt.injection)
    first = Prompt([9, *ids[1:]], prompt.injection)
    audio = Prompt(ids, random_prompt(60, range(20, 40), seed=5).injection)
    session = runs_on.new_session()
    answers = []
    for each in (prompt, prompt, more, less, first, audio, Prompt(ids), Prompt(ids[:1]), prompt):
        answers.append(generate(session, each, GenerateOptions(8)))
        assert answers[-1] == generate(runs_on.new_session(), each, GenerateOptions(8))
    assert len({answer.token_ids for answer in answers}) > 5


def test_a_refused_prompt_leaves_the_session_as_it_was(runs_on: Decoder):
    session = read(runs_on, random_prompt(20))
    with pytest.raises(CapacityError):
        generate(session, random_prompt(20), GenerateOptions(5000))
    assert session.length == 20


@pytest.mark.parametrize("kept", [0, 1, 255, 512, 599])
def test_what_is_cut_off_leaves_nothing_behind(runs_on: Decoder, kept: int):
    first, second = random_prompt(600, range(100, 300), seed=1), random_prompt(600, seed=2)
    session = read(runs_on, first)
    session.truncate(kept)
    assert session.length == kept
    ids = [*first.token_ids[:kept], *second.token_ids[kept:]]
    inside = [p for p in range(100, 300) if p < kept]
    assert first.injection is not None
    mixed = Prompt(ids, Injection(first.injection.values[: len(inside)], inside))
    rest = cut(mixed, [kept])[1] if kept else checked(mixed)
    found = session.prefill(rest, want="logits")[0]
    assert np.array_equal(found, last_logits(runs_on.new_session(), mixed))


def test_nothing_can_be_kept_beyond_the_end(runs_on: Decoder):
    session = read(runs_on, random_prompt(10))
    for length in (11, -1):
        with pytest.raises((ValueError, IndexError, OverflowError, TypeError)):
            session.truncate(length)
    assert session.length == 10


def test_a_clone_goes_its_own_way(runs_on: Decoder):
    prompt = random_prompt(600, range(20))
    session = read(runs_on, prompt)
    twin = session.clone()
    assert twin.length == 600
    alone = read(runs_on, prompt)
    expected = [alone.step(token, "logits")[0] for token in (3, 4, 5)]
    for token in (9, 8, 7):
        session.step(token)
    found = [twin.step(token, "logits")[0] for token in (3, 4, 5)]
    assert np.array_equal(found, expected)
    session.truncate(0)
    assert twin.length == 603
    del session
    gc.collect()
    third = twin.clone()
    twin.truncate(600)
    assert np.array_equal(twin.step(3, "logits")[0], expected[0])
    assert third.length == 603


def test_sessions_interleaved_on_one_decoder_do_not_meet(runs_on: Decoder):
    prompts = [random_prompt(n, range(2, n // 2), seed=n) for n in (30, 300, 7, 530)]
    alone = [generate(runs_on.new_session(), p, GenerateOptions(15)).token_ids for p in prompts]
    assert len(set(alone)) == 4
    sessions = [runs_on.new_session() for _ in prompts]
    ids = [[int(s.prefill(checked(p))[0])] for s, p in zip(sessions, prompts, strict=True)]
    for _ in range(14):
        for session, produced in zip(sessions, ids, strict=True):
            produced.append(int(session.step(produced[-1])[0]))
    assert [tuple(produced) for produced in ids] == alone


def test_eight_threads_with_sessions_of_their_own_get_their_own_answers():
    runs_on = decoder(ENDLESS, make_executor=native(2))
    prompts = [random_prompt(20 + n, range(3, 15), seed=n) for n in range(8)]
    fresh = decoder(ENDLESS)
    alone = [generate(fresh.new_session(), p, GenerateOptions(12)).token_ids for p in prompts]
    assert len(set(alone)) == 8
    together = Barrier(8)

    def work(prompt: Prompt) -> list[tuple[int, ...]]:
        together.wait()
        answers = []
        for _ in range(5):
            answers.append(generate(runs_on.new_session(), prompt, GenerateOptions(12)).token_ids)
            with pytest.raises(CapacityError):
                generate(runs_on.new_session(), prompt, GenerateOptions(9999))
        return answers

    with ThreadPoolExecutor(8) as pool:
        for answers, expected in zip(pool.map(work, prompts), alone, strict=True):
            assert answers == [expected] * 5


# -- what does not fit -----------------------------------------------------------------------------


@pytest.mark.parametrize(("kv", "size"), [("f16", 2), ("f32", 4), ("bf16", 2)])
def test_a_bucket_takes_what_its_format_says(kv: str, size: int):
    assert decoder(ENDLESS, kv=kv).new_cache().page_bytes == PAGE * size


def test_a_prompt_that_does_not_fit_leaves_the_session_usable():
    runs_on = decoder(ENDLESS, kv="f16", memory_limit_bytes=2 * PAGE * 2)
    session = read(runs_on, random_prompt(500))
    expected = session.clone().step(5, "logits")
    message = rf"{500 + 600} positions \(150 of them injected\) needs {2 * PAGE * 2:,} more bytes"
    with pytest.raises(CapacityError, match=message) as refused:
        session.prefill(checked(random_prompt(600, range(150))))
    assert f"{PAGE * 2:,} are available" in str(refused.value)
    assert (session.length, session.capacity) == (500, 512)
    assert np.array_equal(session.step(5, "logits"), expected)
    session.prefill(checked(random_prompt(523)))
    assert (session.length, session.capacity) == (1024, 1024)


def test_an_answer_that_grows_too_large_leaves_the_session_usable():
    runs_on = decoder(ENDLESS, memory_limit_bytes=PAGE * 4)
    session = runs_on.new_session()
    prompt = random_prompt(508, range(9))
    with pytest.raises(CapacityError, match=r"513 positions"):
        generate(session, prompt, GenerateOptions(20))
    assert session.length == 512
    result = generate(session, prompt, GenerateOptions(5))
    assert result == generate(runs_on.new_session(), prompt, GenerateOptions(5))


def test_a_model_that_ends_at_its_last_position_is_full_not_broken():
    spec = replace(ENDLESS, max_position_embeddings=40)
    runs_on = decoder(spec)
    session = runs_on.new_session()
    with pytest.raises(CapacityError, match="41 positions, but the model has 40"):
        generate(session, random_prompt(30), GenerateOptions(11))
    assert session.length == 0
    assert len(generate(session, random_prompt(30), GenerateOptions(10)).token_ids) == 10


def test_memory_that_the_machine_does_not_have_is_an_error():
    runs_on = decoder(ENDLESS, memory_limit_bytes=10**18)
    session = runs_on.new_session()
    with pytest.raises(CapacityError, match=r"4611686018427387904 positions"):
        session.reserve(2**62)
    assert session.capacity == 0
    session.prefill(checked(random_prompt(3)))


def test_a_limit_below_one_bucket_refuses_the_first_token():
    runs_on = decoder(ENDLESS, memory_limit_bytes=10)
    with pytest.raises(CapacityError, match="10 are available"):
        generate(runs_on.new_session(), Prompt([1]), GenerateOptions(1))


def test_a_run_that_fails_leaves_the_caches_record_true(runs_on: Decoder):
    session = read(runs_on, random_prompt(10))
    good = checked(Prompt([3, 4]))
    bad = CheckedPrompt(np.array([3, 9999], np.int32), good.values, good.index)
    with pytest.raises(IndexError):
        session.prefill(bad)
    assert session.length == 10
    expected = read(runs_on, random_prompt(10)).step(4, "logits")
    assert np.array_equal(session.step(4, "logits"), expected)


def test_stepping_allocates_nothing_that_stays(runs_on: Decoder):
    session = read(runs_on, random_prompt(10))
    session.step(1)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(200):
        session.step(1)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 20_000


def test_a_long_answer_of_a_rigged_model_stays_right_over_buckets():
    cycle = {i: (i * 5 + 7) % 47 for i in range(47)}
    runs_on = successor_decoder(cycle, eos=47)
    ids = generate(runs_on.new_session(), Prompt([1]), GenerateOptions(1200)).token_ids
    assert len(ids) == 1200
    assert all(after == cycle[before] for before, after in zip((1, *ids), ids, strict=False))
