"""Greedy generation: which ids, why it ended, and how much was computed for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decoder.tiny import (
    SPEC,
    all_logits,
    decoder,
    random_prompt,
    random_tensors,
    scripted,
    successor_decoder,
)
from stapes.decoder import GenerateOptions, GenerateResult, Prompt, generate
from stapes.errors import ModelError, NumericError

EOS = 511
CHAIN = {i: i + 1 for i in range(1, 20)}  # 1 -> 2 -> ... -> 20


def answer(ids: list[int], budget: int, loops: bool = False) -> tuple[GenerateResult, list[int]]:
    """A scripted answer to three tokens; returns the result and the rows of each run."""
    runs_on, script = scripted(ids)
    options = GenerateOptions(budget, loops)
    return generate(runs_on.new_session(), Prompt([1, 2, 3]), options), script.rows


# -- where an answer ends ------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 17, 30])
@pytest.mark.parametrize("more", [-1, 0, 1, 2, 100])
def test_an_answer_of_n_ids_under_every_cap(length: int, more: int):
    cap = length + more
    if cap < 1:
        return
    ids = list(range(10, 10 + length))
    result, rows = answer([*ids, EOS], cap)
    assert list(result.token_ids) == ids[:cap]
    assert result.finish_reason == ("stop" if cap > length else "length")
    assert rows == [3] + [1] * (min(cap, length + 1) - 1)  # nothing behind the last id


def test_an_answer_that_ends_at_once_is_empty():
    for cap in (1, 5):
        result, rows = answer([EOS], cap)
        assert result.token_ids == ()
        assert result.finish_reason == "stop"
        assert rows == [3]


def test_any_of_several_ids_ends_an_answer():
    for eos in (5, 9, 40):
        runs_on, _ = scripted([20, 21, eos, 22])
        runs_on.spec = replace(SPEC, eos_token_ids=frozenset({5, 9, 40}))
        result = generate(runs_on.new_session(), Prompt([1, 2, 3]), GenerateOptions(10))
        assert result.token_ids == (20, 21)
        assert result.finish_reason == "stop"


def test_without_an_eos_the_budget_ends_it():
    runs_on, _ = scripted([7, EOS, 8, 9])
    runs_on.spec = replace(SPEC, eos_token_ids=frozenset())
    result = generate(runs_on.new_session(), Prompt([1, 2, 3]), GenerateOptions(4))
    assert result.token_ids == (7, EOS, 8, 9)
    assert result.finish_reason == "length"


def test_an_eos_in_the_prompt_ends_nothing():
    runs_on, _ = scripted([7, EOS])
    result = generate(runs_on.new_session(), Prompt([1, EOS, EOS]), GenerateOptions(4))
    assert result.token_ids == (7,)


@pytest.mark.parametrize("cap", [1, 3, 18, 19, 20, 21])
def test_a_rigged_network_emits_its_sequence(cap: int):
    runs_on = successor_decoder(CHAIN, eos=20)
    result = generate(runs_on.new_session(), Prompt([0, 0, 1]), GenerateOptions(cap))
    assert list(result.token_ids) == list(range(2, 20))[:cap]
    assert result.finish_reason == ("stop" if cap > 18 else "length")


def test_greedy_takes_the_first_of_equal_maxima():
    runs_on = successor_decoder({}, eos=40)  # every logit is zero
    result = generate(runs_on.new_session(), Prompt([9]), GenerateOptions(3))
    assert result.token_ids == (0, 0, 0)


# -- what a result says --------------------------------------------------------------------------


def test_a_result_carries_its_prompt_and_its_times():
    result, _ = answer([4, 5, EOS], 9)
    assert result.prompt_tokens == 3
    assert result.kept == 2
    assert result.prefill_s >= 0
    assert result.decode_s >= 0


def test_budgets_in_any_order_give_prefixes_of_one_answer():
    runs_on = decoder(replace(SPEC, eos_token_ids=frozenset()))
    prompt = random_prompt(30, range(5, 20))
    answers = {
        n: generate(runs_on.new_session(), prompt, GenerateOptions(n)).token_ids
        for n in (40, 1, 2, 17, 20, 30, 16, 40)
    }
    assert len(set(answers[40])) > 10
    for n, ids in answers.items():
        assert ids == answers[40][:n]


def test_greedy_ids_are_those_of_whole_prefills():
    """Each id is the first maximum of the logits behind everything before it."""
    runs_on = decoder(replace(SPEC, eos_token_ids=frozenset()))
    prompt = random_prompt(12, [3, 4])
    ids = generate(runs_on.new_session(), prompt, GenerateOptions(20)).token_ids
    whole = Prompt([*prompt.token_ids, *ids[:-1]], prompt.injection)
    assert all_logits(runs_on, whole)[11:].argmax(axis=1).tolist() == list(ids)


def test_ids_and_the_same_embeddings_injected_give_the_same_answer():
    from stapes.decoder import Injection

    spec = replace(SPEC, eos_token_ids=frozenset())
    tensors = random_tensors(spec)
    runs_on = decoder(spec, tensors)
    prompt = random_prompt(25)
    rows = tensors["model.embed_tokens.weight"][prompt.token_ids]
    injected = Prompt([0] * 25, Injection(rows, range(25)))
    first, second = (
        generate(runs_on.new_session(), p, GenerateOptions(30)) for p in (prompt, injected)
    )
    assert first == second


def test_an_id_that_the_vocabulary_does_not_have_ends_the_answer_with_an_error():
    """A head of 700 outputs over a vocabulary of 512: id 600 may come last, and no earlier."""
    runs_on, _ = scripted([7, 600, 8])
    runs_on.spec = replace(SPEC, tie_word_embeddings=False, logits_size=700)
    result = generate(runs_on.new_session(), Prompt([1, 2, 3]), GenerateOptions(2))
    assert result.token_ids == (7, 600)
    with pytest.raises(ModelError, match=r"New token 1 is 600, .* 700 outputs, .* 512 ids"):
        generate(runs_on.new_session(), Prompt([1, 2, 3]), GenerateOptions(3))


# -- numbers that are none -----------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 1, 5])
def test_a_nan_in_the_logits_is_an_error_that_names_the_step(step: int):
    runs_on, script = scripted([*range(step), -1, 9, 9])
    with pytest.raises(NumericError, match=f"new token {step} "):
        generate(runs_on.new_session(), Prompt([1, 2, 3]), GenerateOptions(9))
    assert len(script.rows) == step + 1


@pytest.mark.parametrize("token", [0, 300])
def test_one_nan_among_the_logits_is_never_a_token(token: int):
    """A head row of huge values overflows to infinity minus infinity."""
    spec = replace(SPEC, tie_word_embeddings=False)
    tensors = random_tensors(spec)
    tensors["lm_head.weight"][token] = 3e38 * np.sign(np.arange(64) % 2 - 0.5)
    runs_on = decoder(spec, tensors)
    row = all_logits(runs_on, random_prompt(5))[-1]
    if np.isnan(row).any():
        assert np.isnan(row).sum() == 1
        with pytest.raises(NumericError, match="new token 0 "):
            generate(runs_on.new_session(), random_prompt(5), GenerateOptions(3))
    else:
        assert np.isinf(row[token])


@pytest.mark.parametrize("kv", ["f16", "f32", "bf16"])
def test_values_too_large_for_an_f16_cache_are_an_error_not_text(kv: str):
    tensors = random_tensors(SPEC)
    tensors["model.layers.1.self_attn.v_proj.weight"] *= 1e5
    runs_on = decoder(SPEC, tensors, kv=kv)
    prompt = random_prompt(8)
    if kv == "f16":
        with pytest.raises(NumericError):
            generate(runs_on.new_session(), prompt, GenerateOptions(4))
    else:
        assert len(generate(runs_on.new_session(), prompt, GenerateOptions(4)).token_ids) == 4


def test_activations_that_overflow_f32_are_an_error():
    tensors = random_tensors(SPEC)
    tensors["model.layers.0.mlp.down_proj.weight"] *= 1e30
    tensors["model.layers.0.mlp.up_proj.weight"] *= 1e30
    with pytest.raises(NumericError, match="new token 0 "):
        generate(decoder(SPEC, tensors).new_session(), random_prompt(8), GenerateOptions(4))


# -- loops -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("period", [1, 3, 20])
def test_a_network_that_never_ends_is_stopped(period: int):
    cycle = {i: i % period + 1 for i in range(1, period + 1)}
    runs_on = successor_decoder(cycle, eos=40)
    options = GenerateOptions(4000, loop_detection=True)
    result = generate(runs_on.new_session(), Prompt([0, 1]), options)
    assert result.finish_reason == "loop"
    assert len(result.token_ids) <= max(48, 8 * period)
    assert len(result.token_ids[: result.kept]) == period


def test_loop_detection_is_off_by_default():
    runs_on = successor_decoder({1: 1}, eos=40)
    result = generate(runs_on.new_session(), Prompt([1]), GenerateOptions(200))
    assert result.finish_reason == "length"
    assert result.token_ids == (1,) * 200
    assert result.kept == 200


@pytest.mark.parametrize("spoken", [[7, 11] * 12, [5] * 10, [7] * 12], ids=["no", "digits", "noo"])
def test_repeats_that_people_say_survive(spoken: list[int]):
    result, _ = answer([*spoken, 3, EOS], 512, loops=True)
    assert list(result.token_ids) == [*spoken, 3]
    assert result.finish_reason == "stop"
    assert result.kept == len(result.token_ids)


def test_a_loop_found_at_the_last_permitted_id_is_a_loop():
    result, rows = answer([6] * 48, 48, loops=True)
    assert result.finish_reason == "loop"
    assert result.kept == 1
    assert len(rows) == 48
