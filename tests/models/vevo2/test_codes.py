"""Codes from the autoregressive stage: how they end, stream, repeat and stand side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stapes.decoder import Decoder, GenerateOptions, generate
from stapes.errors import ModelError, NumericError, RequestError
from stapes.graph import Plan
from stapes.models.vevo2.autoregressive.codes import GeneratedCodes
from stapes.models.vevo2.autoregressive.decoder import Vevo2Decoder
from stapes.models.vevo2.autoregressive.options import CodeOptions
from stapes.models.vevo2.autoregressive.prompt import CodeRequest
from vevo2_models import ids

REQUEST = CodeRequest("The quick brown fox.", style_text="La la", style_codes=range(100, 130))
OTHERS = [
    REQUEST,
    CodeRequest("dogs"),
    CodeRequest("fox", "humming_to_singing", prosody_codes=[3, 1, 4]),
    REQUEST,
    CodeRequest("No, no, no!", style_codes=[5, 6, 7]),
]
END, CODES_END = ids()["<|im_end|>"], ids()["<|content_style_end|>"]
TEXT = 300  # a piece of plain text


def token(code: int) -> int:
    return ids()[f"<|content_style_{code}|>"]


def short(seed: int | None = 0, **more: Any) -> CodeOptions:
    return CodeOptions(**{"max_new_tokens": 40, "seed": seed, "codes_only": True, **more})


class Scripted:
    """Makes one id after another as good as certain, unless it is ruled out; the last one repeats.

    It makes the executors of a decoder, and runs their plans.
    """

    def __init__(self, decoder: Decoder, script: list[int]) -> None:
        self.make, self.script, self.given = decoder._make_executor, script, 0
        self.inner: Any = None

    def __call__(self, plan: Plan) -> Scripted:
        self.inner = self.make(plan)
        return self

    def new_cache(self, *shape: Any) -> Any:
        return self.inner.new_cache(*shape)

    def run(self, inputs: Any, caches: Any) -> Any:
        if self.inner.plan.outputs.keys() != {"next", "logits"}:
            raise AssertionError("a sampled answer needs logits")
        result = self.inner.run(inputs, caches)
        for row in result["logits"]:
            possible = np.isfinite(row)
            row[possible] = np.random.default_rng(self.given).uniform(-1, 1, possible.sum())
            wanted = self.script[min(self.given, len(self.script) - 1)]
            row[wanted] = 300 if possible[wanted] else -np.inf
            self.given += 1
        return result


@pytest.fixture
def scripted(model) -> Callable[[list[int]], Vevo2Decoder]:
    def scripted(script: list[int]) -> Vevo2Decoder:
        old = model.decoder
        make: Any = Scripted(old, script)
        decoder = Decoder(old.spec, old.weights, make, old.kv)
        return Vevo2Decoder("scripted", decoder, model.tokenizer, model.tokens, 1.1)

    return scripted


def plain(**more: Any) -> CodeOptions:
    return CodeOptions(**{"min_new_tokens": 0, "max_new_tokens": 30, "seed": 0, **more})


# -- how an answer ends ----------------------------------------------------------------------------


def test_the_end_of_the_turn_ends_it_and_that_of_the_codes_does_not(scripted):
    script = [token(9), token(16383), CODES_END, token(0), TEXT, token(4), END, token(5)]
    found = scripted(script).generate(REQUEST, plain())
    assert found.codes == (9, 16383, 0, 4)
    assert found.token_ids == tuple(script[:6])
    assert found.finish_reason == "stop"
    assert found.seconds == 4 / 12.5


def test_the_budget_ends_it(scripted):
    found = scripted([token(i) for i in range(30)]).generate(REQUEST, plain())
    assert (found.codes, found.finish_reason) == (tuple(range(30)), "length")


def test_no_end_before_the_least_number_of_tokens(scripted):
    """Where the end would be certain, something else is drawn."""
    found = scripted([END]).generate(REQUEST, plain(min_new_tokens=15, codes_only=True))
    assert len(found.token_ids) == 15
    assert (found.finish_reason, END in found.token_ids) == ("stop", False)


def test_the_second_end_of_generation_config_ends_nothing(scripted, model):
    other = ids()["<|endoftext|>"]
    assert model.decoder.spec.eos_token_ids == {END}
    found = scripted([token(1), CODES_END, other, other, END]).generate(REQUEST, plain())
    assert found.token_ids == (token(1), CODES_END, other, other)


@pytest.mark.parametrize("script", [[END], [CODES_END, END], [CODES_END, TEXT, END]])
def test_an_answer_without_codes_is_an_error(scripted, script):
    model = scripted(script)
    message = f"after {len(script) - 1} tokens without a single code"
    with pytest.raises(ModelError, match=message):
        model.generate(REQUEST, plain())
    with pytest.raises(ModelError, match=message):
        list(scripted(script).stream(REQUEST, plain()))
    [beside] = scripted(script).generate_batch([REQUEST], plain())
    assert isinstance(beside, ModelError)


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        (TEXT, ""),
        (ids()["<|prosody_3|>"], r"'<\|prosody_3\|>'"),
        (ids()["<|endoftext|>"], r"'<\|endoftext\|>'"),
        (ids()["<|content_style_start|>"], r"'<\|content_style_start\|>'"),
    ],
)
def test_what_is_no_code_inside_the_codes_is_an_error(scripted, wrong, shown):
    script = [token(1), token(2), wrong, token(3), END]
    with pytest.raises(ModelError, match=rf"New token 2 is {shown}.*id {wrong}.*behind 2 codes"):
        scripted(script).generate(REQUEST, plain())
    stream = scripted(script).stream(REQUEST, plain())
    assert [next(stream), next(stream)] == [1, 2]
    for again in (stream.__next__, stream.result):
        with pytest.raises(ModelError, match="New token 2"):
            again()


def test_a_random_model_writes_other_ids_unless_they_are_ruled_out(model):
    seeds = range(12)
    hot = {"temperature": 8.0, "top_k": None, "top_p": 1.0, "min_new_tokens": 40}
    for seed in seeds:
        found = model.generate(REQUEST, short(seed, **hot))
        assert set(found.token_ids) <= {*model.tokens.content_style.tolist(), CODES_END}
    failed = 0
    for seed in seeds:
        try:
            model.generate(REQUEST, short(seed, codes_only=False, **hot))
        except ModelError:
            failed += 1
    assert failed > 6


# -- seeds, streams, sessions ----------------------------------------------------------------------


def test_a_seed_repeats_and_another_does_not(model):
    answers = [model.generate(REQUEST, short(seed)) for seed in (1, 1, 2, 3)]
    assert answers[0] == answers[1]
    assert len({answer.codes for answer in answers}) == 3
    free = [model.generate(REQUEST, short(None)).codes for _ in range(3)]
    assert len(set(free)) == 3


def test_the_text_and_the_style_change_the_codes(model):
    changed = [
        CodeRequest("The quick brown cat.", style_text="La la", style_codes=range(100, 130)),
        CodeRequest("The quick brown fox.", style_text="La la", style_codes=range(101, 131)),
        CodeRequest("The quick brown fox.", style_codes=range(100, 130)),
    ]
    found = {model.generate(request, short()).codes for request in (REQUEST, *changed)}
    assert len(found) == 4


def test_codes_come_as_they_are_drawn(model):
    whole = model.generate(REQUEST, short())
    seen: list[int] = []
    with model.stream(REQUEST, short()) as stream:
        with pytest.raises(RequestError, match="0 ids are there so far"):
            stream.result()
        for code in stream:
            seen.append(code)
            assert tuple(seen) == whole.codes[: len(seen)]
            assert len(stream._generation.token_ids) <= len(seen) + 1
        assert stream.result() == whole
    assert tuple(seen) == whole.codes
    assert next(stream, None) is None


def test_a_stream_that_is_left_keeps_what_it_has(model):
    with model.stream(REQUEST, short()) as stream:
        first = [next(stream) for _ in range(3)]
    assert next(stream, None) is None
    left = stream.result()
    assert (left.codes, left.finish_reason) == (tuple(first), "cancelled")
    assert model.generate(REQUEST, short()).codes[:3] == tuple(first)


def test_two_streams_at_a_time(model):
    expected = [model.generate(request, short(4)).codes for request in OTHERS[:2]]
    streams = [model.stream(request, short(4)) for request in OTHERS[:2]]
    taken: list[list[int]] = [[], []]
    for _ in range(40):
        for stream, codes in zip(streams, taken, strict=True):
            codes += [code for code in [next(stream, None)] if code is not None]
    assert [tuple(codes) for codes in taken] == expected


def test_what_is_common_with_the_last_prompt_is_not_computed_again(model):
    length = len(model.encode(REQUEST))
    model.generate(OTHERS[1], short())
    first = model.generate(REQUEST, short(1))
    assert 0 < first.reused_tokens < length
    again = model.generate(REQUEST, short(2))
    assert again.reused_tokens == again.prompt_tokens - 1 == length - 1


def test_cancelling(model):
    asked = iter([False] * 5 + [True])
    found = model.generate(REQUEST, short(), asked.__next__)
    assert (len(found.token_ids), found.finish_reason) == (5, "cancelled")
    nothing = model.generate(REQUEST, short(), lambda: True)
    assert (nothing.codes, nothing.finish_reason) == ((), "cancelled")


def test_a_request_that_does_not_fit_leaves_the_model_usable(model):
    with pytest.raises(Exception, match=r"4096"):
        model.stream(REQUEST, short(max_new_tokens=4096))
    assert model.generate(REQUEST, short()).codes


# -- batches ---------------------------------------------------------------------------------------


def test_side_by_side_each_is_as_alone(model):
    options = [short(seed, codes_only=seed % 2 == 0) for seed in range(len(OTHERS))]
    alone = [_attempt(model, *both) for both in zip(OTHERS, options, strict=True)]
    beside = model.generate_batch(OTHERS, options)
    assert [_told(found) for found in beside] == [_told(found) for found in alone]
    assert len({_told(found) for found in beside}) == len(OTHERS)
    assert sum(isinstance(found, GeneratedCodes) for found in beside) >= 3


def test_the_same_request_with_a_seed_for_each(model):
    found = model.generate_batch([REQUEST] * 4, [short(seed) for seed in (5, 6, 5, 7)])
    assert found[0] == found[2]
    assert len({answer.codes for answer in found if isinstance(answer, GeneratedCodes)}) == 3


def test_one_that_fails_does_so_alone(model):
    bad = CodeRequest("dogs", style_codes=[99999])
    first, second, third = model.generate_batch([REQUEST, bad, REQUEST], short(2))
    assert first == third == model.generate(REQUEST, short(2))
    assert isinstance(second, RequestError)
    assert model.generate_batch([]) == []
    with pytest.raises(RequestError, match="2 requests need as many options, not 1"):
        model.generate_batch([REQUEST, REQUEST], [short()])


def _attempt(
    model: Vevo2Decoder, request: CodeRequest, options: CodeOptions
) -> GeneratedCodes | Exception:
    try:
        return model.generate(request, options)
    except ModelError as error:
        return error


def _told(found: GeneratedCodes | Exception) -> object:
    assert not isinstance(found, NumericError)
    return str(found) if isinstance(found, Exception) else (found.codes, found.finish_reason)


# -- options ---------------------------------------------------------------------------------------


def test_the_defaults_are_the_publishers():
    sampling = CodeOptions().sampling(1.1)
    assert vars(sampling) == {
        "temperature": 1.0,
        "top_k": 25,
        "top_p": 0.8,
        "repetition_penalty": 1.1,
        "min_new_tokens": 15,
        "seed": None,
    }
    assert CodeOptions().max_new_tokens == 500
    assert not CodeOptions().codes_only
    assert CodeOptions(repetition_penalty=1.0).sampling(1.1).repetition_penalty == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": True}, "max_new_tokens"),
        ({"max_new_tokens": 10}, r"min_new_tokens is 15, more than max_new_tokens \(10\)"),
        ({"min_new_tokens": -1}, "min_new_tokens"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"temperature": -1}, "temperature"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_options(given, message):
    with pytest.raises(RequestError, match=message):
        CodeOptions(**given)


@pytest.mark.parametrize("greedy", [{"top_k": 1}, {"temperature": 0}])
def test_one_candidate_is_the_likeliest(model, greedy):
    found = [model.generate(REQUEST, short(seed, **greedy)).codes for seed in (1, 2)]
    assert found[0] == found[1]
    assert len(set(found[0])) > 5


def test_one_candidate_without_a_penalty_is_plain_greedy(model):
    options = short(top_k=1, repetition_penalty=1.0, min_new_tokens=0)
    greedy = GenerateOptions(40, allowed_ids=model.tokens.answer_ranges())
    found = generate(model.decoder.new_session(), model.encode(REQUEST), greedy)
    assert model.generate(REQUEST, options).token_ids == found.token_ids


def test_the_penalty_counts_the_codes_of_the_style_as_said(model):
    style = CodeRequest("dogs", style_codes=range(0, 16384, 5))
    options = {"max_new_tokens": 100, "temperature": 3.0, "top_k": None, "top_p": 1.0}
    found = model.generate(style, short(repetition_penalty=1e9, **options)).codes
    plain = model.generate(style, short(repetition_penalty=1.0, **options)).codes
    assert sum(code % 5 == 0 for code in plain) > 5
    assert sum(code % 5 == 0 for code in found) < sum(code % 5 == 0 for code in plain)
