"""Sixteen threads on one model: whatever the others do and fail at, every answer is the right one.

Each thread has sessions of its own. The decoder is new, so that its first use is shared, too; what
is right comes from another one with the same weights, asked for one prompt after the other.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from decoder.tiny import SPEC, decoder, native, random_prompt
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
from stapes.errors import CapacityError, RequestError

THREADS, PROMPTS, ROUNDS, NEW = 16, 16, 2, 6
ENDLESS = replace(SPEC, eos_token_ids=frozenset())
PAGE = decoder(ENDLESS, kv="f16").new_cache().page_bytes


def prompts() -> list[Prompt]:
    """Distinct ones of 1 to 301 tokens, which begin alike and part at an id or an injected row."""
    whole = random_prompt(320, range(10, 160))
    assert whole.injection is not None
    made = []
    for i in range(PROMPTS):
        length = 1 + 20 * i
        part, rows = length * 2 // 3, max(0, length // 2 - 10)
        ids = [*whole.token_ids[:part], *random_prompt(length, seed=i).token_ids[part:]]
        values = whole.injection.values[:rows].copy()
        values[rows * 2 // 3 :] *= 1 - i % 2 / 8
        made.append(Prompt(ids, Injection(values, range(10, 10 + rows))))
    return made


class Workload:
    """What one thread does, in an order of its own, and the answers that are right.

    Every method runs prompt number i in the thread's session, and looks at what comes of it.
    """

    def __init__(self, runs_on: Decoder, cold: list[GenerateResult], sampled: list[GenerateResult]):
        self.runs_on, self.cold, self.sampled = runs_on, cold, sampled
        self.prompts = prompts()
        self.session: Session = runs_on.new_session()

    def answer(self, i: int, options: GenerateOptions | None = None) -> GenerateResult:
        return generate(self.session, self.prompts[i], options or GenerateOptions(NEW))

    def plain(self, i: int) -> None:
        assert self.answer(i) == self.cold[i]

    def sampling(self, i: int) -> None:
        assert self.answer(i, sampling(i)) == self.sampled[i]

    def draft(self, i: int) -> None:
        guess = [*self.cold[i].token_ids[: i % NEW], 3, 4]
        result = self.answer(i, GenerateOptions(NEW, draft_ids=guess))
        assert result == self.cold[i]
        assert result.draft_accepted >= i % NEW

    def cancelled(self, i: int) -> None:
        seen: list[int] = []
        options = GenerateOptions(
            NEW, on_token=seen.append, should_cancel=lambda: len(seen) == i % 4
        )
        result = self.answer(i, options)
        assert result.finish_reason == "cancelled"
        assert result.token_ids == tuple(seen) == self.cold[i].token_ids[: i % 4]

    def raising(self, i: int) -> None:
        def on_token(token: int) -> None:
            raise LookupError(token)

        with pytest.raises(LookupError) as caught:
            self.answer(i, GenerateOptions(NEW, on_token=on_token))
        assert caught.value.args == self.cold[i].token_ids[:1]

    def too_large(self, i: int) -> None:
        with pytest.raises(CapacityError, match=rf"{600 + i} positions"):
            generate(self.session, random_prompt(600 + i), GenerateOptions(NEW))

    def refused(self, i: int) -> None:
        with pytest.raises(RequestError, match="outside the vocabulary"):
            generate(self.session, Prompt([ENDLESS.vocab_size + i]), GenerateOptions(NEW))

    def clone(self, i: int) -> None:
        self.plain(i)
        twin = self.session.clone()
        other = (i + 1) % PROMPTS
        assert generate(twin, self.prompts[other], GenerateOptions(NEW)) == self.cold[other]
        self.plain(i)

    def batch(self, i: int) -> None:
        """The thread's session and new ones; one sampled, one that is cancelled, one that fails."""
        batch, numbers = Batch(self.runs_on, max_rows=64), [(i + n) % PROMPTS for n in range(3)]
        sessions = [self.session, self.runs_on.new_session(), self.runs_on.new_session()]
        asked = [GenerateOptions(NEW), sampling(numbers[1]), GenerateOptions(3)]
        answers = [
            batch.join(session, self.prompts[n], options)
            for session, n, options in zip(sessions, numbers, asked, strict=True)
        ]
        large = batch.join(self.runs_on.new_session(), random_prompt(700), GenerateOptions(NEW))
        leaving = batch.join(self.runs_on.new_session(), self.prompts[i], GenerateOptions(NEW))
        batch.step()
        batch.leave(leaving)
        batch.run()
        plain, drawn, short = [answer.result() for answer in answers]
        assert plain == self.cold[numbers[0]]
        assert drawn == self.sampled[numbers[1]]
        assert short.token_ids == self.cold[numbers[2]].token_ids[:3]
        assert leaving.result().finish_reason == "cancelled"
        with pytest.raises(CapacityError, match="700 positions"):
            large.result()


ACTIONS: list[Callable[[Workload, int], None]] = [
    Workload.plain,
    Workload.sampling,
    Workload.draft,
    Workload.cancelled,
    Workload.raising,
    Workload.too_large,
    Workload.refused,
    Workload.clone,
    Workload.batch,
]


def sampling(i: int) -> GenerateOptions:
    options = SamplingOptions(0.8, top_k=40, top_p=0.95, repetition_penalty=1.1, seed=i)
    return GenerateOptions(NEW, sampling=options, logprobs=True)


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns in Python a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 100)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried")
def test_every_answer_of_every_thread_is_right():
    alone = decoder(ENDLESS, weights="q8", kv="f16", make_executor=native(2))
    cold = [generate(alone.new_session(), p, GenerateOptions(NEW)) for p in prompts()]
    sampled = [generate(alone.new_session(), p, sampling(i)) for i, p in enumerate(prompts())]
    assert len({result.token_ids for result in (*cold, *sampled)}) == 2 * PROMPTS
    shared = decoder(
        ENDLESS, weights="q8", kv="f16", make_executor=native(2), memory_limit_bytes=PAGE
    )
    start = Barrier(THREADS)

    def work(thread: int) -> int:
        order = random.Random(thread)
        workload, done = Workload(shared, cold, sampled), 0
        start.wait(30)
        for _ in range(ROUNDS):
            for i in order.sample(range(PROMPTS), PROMPTS):
                order.choice(ACTIONS)(workload, i)
                workload.plain(i)  # whatever went before it
                done += 1
        return done

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [ROUNDS * PROMPTS] * THREADS
