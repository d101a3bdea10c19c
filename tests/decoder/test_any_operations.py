"""Whatever is done to sessions in whatever order, every answer is that of a cold start.

Hypothesis invents sequences of operations on a few sessions of one decoder: prompts that share,
extend, shorten and change what came before, in ids or in injected rows; drafts; truncated, cloned
and cancelled sessions; failures in the middle of a run, before it or in a callback; batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from decoder.tiny import F32, SPEC, checked, decoder, native
from stapes.decoder import (
    Batch,
    Decoder,
    GenerateOptions,
    GenerateResult,
    Injection,
    Prompt,
    SamplingOptions,
    Session,
    generate,
)
from stapes.decoder.prompt import CheckedPrompt

ONE_LAYER = replace(
    SPEC, num_hidden_layers=1, hidden_size=32, head_dim=8, intermediate_size=40, vocab_size=96,
    eos_token_ids=frozenset({95}),
)  # fmt: skip
LENGTHS = st.one_of(st.integers(1, 40), st.sampled_from([255, 256, 257, 300, 511, 512, 513, 600]))
IDS = st.integers(0, 94)
SAMPLING = st.sampled_from([None, None, SamplingOptions(0.9, top_k=12, top_p=0.9, seed=5)])


@cache
def row(seed: int) -> F32:
    return np.random.default_rng(seed).normal(0, 0.3, ONE_LAYER.hidden_size).astype(np.float32)


@dataclass(frozen=True)
class Content:
    """A prompt that can be compared: ids, and the seeds of its injected rows by position."""

    ids: tuple[int, ...]
    rows: tuple[tuple[int, int], ...] = ()

    def prompt(self) -> Prompt:
        if not self.rows:
            return Prompt(self.ids)
        values = np.stack([row(seed) for _, seed in self.rows])
        return Prompt(self.ids, Injection(values, [position for position, _ in self.rows]))

    def cut(self, length: int) -> Content:
        return Content(self.ids[:length], tuple(r for r in self.rows if r[0] < length))

    def longer(self, ids: Sequence[int]) -> Content:
        return Content((*self.ids, *ids), self.rows)

    def with_id(self, position: int, token: int) -> Content:
        return Content((*self.ids[:position], token, *self.ids[position + 1 :]), self.rows)

    def with_row(self, position: int, seed: int | None) -> Content:
        rows = dict(self.rows) | ({} if seed is None else {position: seed})
        if seed is None:
            rows.pop(position, None)
        return Content(self.ids, tuple(sorted(rows.items())))


class Flaky:
    """An executor whose next runs can be made to fail: before they begin, or in their midst."""

    def __init__(self, plan: Any) -> None:
        self.inner = native()(plan)
        self.plan = plan
        self.new_cache = self.inner.new_cache

    countdown: int | None = None
    in_the_midst = False

    def run(self, inputs: Mapping[str, Any], caches: Any) -> Any:
        if Flaky.countdown is not None:
            Flaky.countdown -= 1
            if Flaky.countdown < 0:
                Flaky.countdown = None
                if Flaky.in_the_midst:  # the core finds the last row's id wrong, and takes it back
                    bad = inputs["ids"].copy()
                    bad[-1] = ONE_LAYER.vocab_size
                    return self.inner.run({**inputs, "ids": bad}, caches)
                raise MemoryError
        return self.inner.run(inputs, caches)


@cache
def shared_decoder() -> Decoder:
    return decoder(ONE_LAYER, kv="f16", weights="q8", make_executor=Flaky)


@cache
def cold(content: Content, budget: int, sampling: SamplingOptions | None) -> GenerateResult:
    """The answer of a new session, without a draft. The decoder is another one, too."""
    options = GenerateOptions(budget, sampling=sampling, logprobs=True)
    return generate(cold_decoder().new_session(), content.prompt(), options)


@cache
def cold_decoder() -> Decoder:
    return decoder(ONE_LAYER, kv="f16", weights="q8")


class OwnError(Exception):
    """What a callback of a test raises."""


class Sessions(RuleBasedStateMachine):
    """Sessions, what each was last asked, and one prompt that the operations change."""

    @initialize(length=LENGTHS, seed=st.integers(0, 3))
    def begin(self, length: int, seed: int) -> None:
        Flaky.countdown = None
        self.sessions = [shared_decoder().new_session()]
        self.another(length, seed)

    # -- the prompt ------------------------------------------------------------------------------

    @rule(length=LENGTHS, seed=st.integers(0, 3))
    def another(self, length: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        rows = tuple((p, int(rng.integers(9))) for p in range(length // 3, length // 2))
        self.content = Content(tuple(rng.integers(0, 95, length).tolist()), rows)

    @rule(ids=st.lists(IDS, min_size=1, max_size=20))
    def extend(self, ids: list[int]) -> None:
        self.content = self.content.longer(ids) if len(self.content.ids) < 700 else self.content

    @rule(share=st.floats(0, 1))
    def shorten(self, share: float) -> None:
        self.content = self.content.cut(max(1, int(share * len(self.content.ids))))

    @rule(share=st.floats(0, 0.999), token=IDS)
    def change_an_id(self, share: float, token: int) -> None:
        self.content = self.content.with_id(int(share * len(self.content.ids)), token)

    @rule(share=st.floats(0, 0.999), seed=st.one_of(st.none(), st.integers(0, 9)))
    def change_a_row(self, share: float, seed: int | None) -> None:
        self.content = self.content.with_row(int(share * len(self.content.ids)), seed)

    # -- answers ---------------------------------------------------------------------------------

    def draft(self, content: Content, budget: int, right: int, wrong: list[int]) -> list[int]:
        return [*cold(content, budget, None).token_ids[:right], *wrong]

    def session(self, number: int) -> Session:
        return self.sessions[number % len(self.sessions)]

    @rule(
        number=st.integers(0, 3), budget=st.integers(1, 12), sampling=SAMPLING,
        right=st.integers(0, 14), wrong=st.lists(st.integers(0, 95), max_size=4),
        logprobs=st.booleans(), goes_on=st.booleans(),
    )  # fmt: skip
    def answer(
        self, number: int, budget: int, sampling: SamplingOptions | None, right: int,
        wrong: list[int], logprobs: bool, goes_on: bool,
    ) -> None:  # fmt: skip
        session, expected = self.session(number), cold(self.content, budget, sampling)
        options = GenerateOptions(
            budget,
            sampling=sampling,
            logprobs=logprobs,
            draft_ids=self.draft(self.content, budget, right, wrong),
        )
        result = generate(session, self.content.prompt(), options)
        same_answer(result, expected)
        assert session.length <= len(self.content.ids) + budget - 1
        if goes_on:  # the next prompt holds the answer, as the next turn of a chat does
            self.extend(list(result.token_ids[:6]) or [1])

    @rule(number=st.integers(0, 3), budget=st.integers(2, 12), tokens=st.integers(0, 11))
    def cancelled_answer(self, number: int, budget: int, tokens: int) -> None:
        seen: list[int] = []
        options = GenerateOptions(
            budget, on_token=seen.append, should_cancel=lambda: len(seen) >= tokens
        )
        result = generate(self.session(number), self.content.prompt(), options)
        expected = cold(self.content, budget, None).token_ids
        assert result.token_ids == tuple(seen) == expected[: min(tokens, budget)]

    @rule(number=st.integers(0, 3), budget=st.integers(2, 12), tokens=st.integers(1, 11))
    def answer_that_a_callback_ends(self, number: int, budget: int, tokens: int) -> None:
        seen: list[int] = []

        def on_token(token: int) -> None:
            seen.append(token)
            if len(seen) == tokens:
                raise OwnError

        expected = cold(self.content, budget, None).token_ids
        options = GenerateOptions(budget, on_token=on_token)
        if len(expected) < tokens:
            assert (
                generate(self.session(number), self.content.prompt(), options).token_ids == expected
            )
            return
        with pytest.raises(OwnError):
            generate(self.session(number), self.content.prompt(), options)
        assert tuple(seen) == expected[:tokens]

    @rule(number=st.integers(0, 3), runs=st.integers(0, 6), in_the_midst=st.booleans())
    def answer_that_fails(self, number: int, runs: int, in_the_midst: bool) -> None:
        seen: list[int] = []
        Flaky.countdown, Flaky.in_the_midst = runs, in_the_midst
        expected = cold(self.content, 8, None).token_ids
        options = GenerateOptions(8, on_token=seen.append)
        try:
            result = generate(self.session(number), self.content.prompt(), options)
            assert result.token_ids == expected
        except (MemoryError, IndexError):
            assert tuple(seen) == expected[: len(seen)]
        Flaky.countdown = None

    # -- sessions --------------------------------------------------------------------------------

    @rule(number=st.integers(0, 3), share=st.floats(0, 1))
    def truncate(self, number: int, share: float) -> None:
        session = self.session(number)
        session.truncate(int(share * session.length))

    @rule(number=st.integers(0, 3))
    def clone(self, number: int) -> None:
        self.sessions = [*self.sessions[-2:], self.session(number).clone()]

    @rule()
    def new_session(self) -> None:
        self.sessions = [*self.sessions[-2:], shared_decoder().new_session()]

    # -- batches ---------------------------------------------------------------------------------

    @rule(
        max_rows=st.sampled_from([1, 7, 64, 256]), steps=st.integers(0, 6), leaves=st.booleans(),
        fails=st.one_of(st.none(), st.integers(0, 9)), sampling=SAMPLING,
        right=st.integers(0, 8), wrong=st.lists(IDS, max_size=3),
    )  # fmt: skip
    def batch(
        self, max_rows: int, steps: int, leaves: bool, fails: int | None,
        sampling: SamplingOptions | None, right: int, wrong: list[int],
    ) -> None:  # fmt: skip
        """Every session with a variant of the prompt; another joins later, one leaves."""
        variants = [self.content, self.content.longer([3, 4]), self.content.with_id(0, 7)]
        batch, answers = Batch(shared_decoder(), max_rows), []

        def join(session: Session, content: Content, budget: int) -> None:
            options = GenerateOptions(
                budget, sampling=sampling, draft_ids=self.draft(content, budget, right, wrong)
            )
            answers.append((batch.join(session, content.prompt(), options), content, budget))

        for i, session in enumerate(self.sessions):
            join(session, variants[i % 3], 3 + 4 * i)
        for _ in range(steps):
            batch.step()
        if leaves:
            batch.leave(answers[0][0])
        join(shared_decoder().new_session(), self.content.cut(20), 6)
        Flaky.countdown = fails  # a run of several is run again, one by one, and nobody is harmed
        Flaky.in_the_midst = False
        batch.run()
        Flaky.countdown = None
        for answer, content, budget in answers:
            expected = cold(content, budget, sampling)
            if answer.error is not None:
                assert isinstance(answer.error, MemoryError)
                assert tuple(answer.token_ids) == expected.token_ids[: len(answer.token_ids)]
            elif answer.finish_reason == "cancelled":
                assert tuple(answer.token_ids) == expected.token_ids[: len(answer.token_ids)]
            else:
                same_answer(answer.result(), expected)

    # -- what holds at any time ------------------------------------------------------------------

    @invariant()
    def caches_hold_what_is_recorded(self) -> None:
        """One more token gives the logits of a cold start on what the record says is there."""
        for session in self.sessions:
            assert len(session.record) == session.length
            content = recorded(session, 5)
            found = session.clone().step(5, "logits")
            assert np.array_equal(
                found, cold_decoder().new_session().prefill(content, want="logits")
            )


def recorded(session: Session, token: int) -> CheckedPrompt:
    """What a session's record holds, and one token behind it."""
    record, length = session.record, session.length
    ids = [*record._ids, token]
    count = len(record._index)
    prompt = Prompt(ids, Injection(record._values[:count].copy(), list(record._index)))
    assert len(ids) == length + 1
    return checked(prompt, ONE_LAYER)


def same_answer(found: GenerateResult, expected: GenerateResult) -> None:
    assert found.token_ids == expected.token_ids
    assert found.finish_reason == expected.finish_reason
    if found.logprobs is not None:
        assert found.logprobs == expected.logprobs
    assert found.reused_tokens < found.prompt_tokens
    assert found.draft_accepted <= found.draft_offered


Sessions.TestCase.settings = settings(
    max_examples=100,  # thousands of operations; each is followed by the invariant
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestSessions: Callable[..., Any] = Sessions.TestCase
