"""Greedy generation: ids first, then a result with its statistics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from stapes.decoder.loops import LoopDetector
from stapes.decoder.prompt import CheckedPrompt, Prompt, check_prompt
from stapes.decoder.session import Session
from stapes.errors import NumericError

FinishReason = Literal["stop", "length", "loop"]


@dataclass(frozen=True)
class GenerateOptions:
    """What is asked of one generation.

    Attributes:
        max_new_tokens: most ids that may be generated, the one that ends the answer included.
        loop_detection: end an answer that repeats itself without end, with reason "loop".
    """

    max_new_tokens: int
    loop_detection: bool = False


@dataclass(frozen=True)
class GenerateResult:
    """A generated answer.

    Attributes:
        token_ids: new ids; the EOS that ended the answer is not among them.
        finish_reason: "stop" (an EOS came), "length" (the budget is used up), "loop".
        kept: how many first ids remain when a loop's repeats are dropped; all of them otherwise.
        prompt_tokens: length of the prompt.
        prefill_s: seconds to the first id. decode_s: seconds for the rest.
    """

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    kept: int
    prompt_tokens: int
    prefill_s: float = field(compare=False)
    decode_s: float = field(compare=False)


class GreedyIds:
    """The ids of a greedy answer, one at a time; `finish_reason` is set when they end.

    An id is asked for only when it can still be returned: nothing is computed behind the last one.
    """

    def __init__(self, session: Session, prompt: CheckedPrompt, max_new_tokens: int) -> None:
        self.session = session
        self.prompt = prompt
        self.max_new_tokens = max_new_tokens
        self.finish_reason: FinishReason = "length"

    def __iter__(self) -> Iterator[int]:
        eos = self.session.decoder.spec.eos_token_ids
        token = -1
        for step in range(self.max_new_tokens):
            token = self._next(token, step)
            if token in eos:
                self.finish_reason = "stop"
                return
            yield token

    def _next(self, token: int, step: int) -> int:
        result = self.session.step(token) if step else self.session.prefill(self.prompt)
        if result[0] < 0:
            raise NumericError(
                f"The logits of new token {step} hold a NaN: the model's numbers overflowed."
            )
        return int(result[0])


def generate(session: Session, prompt: Prompt, options: GenerateOptions) -> GenerateResult:
    """Read a prompt and continue it greedily.

    The prompt is the whole of the sequence: what the session held before is forgotten.

    Raises:
        RequestError, CapacityError, NumericError: see `check_prompt`; also NumericError for a NaN
            in the logits, which names the step.
    """
    spec = session.decoder.spec
    checked = check_prompt(prompt, options.max_new_tokens, spec)
    session.truncate(0)
    ids = GreedyIds(session, checked, options.max_new_tokens)
    loops = LoopDetector() if options.loop_detection else None
    started = first = time.perf_counter()
    produced: list[int] = []
    kept: int | None = None
    for token in ids:
        if not produced:
            first = time.perf_counter()
        produced.append(token)
        kept = loops.feed(token) if loops else None
        if kept is not None:
            break
    ended = time.perf_counter()
    first = first if produced else ended
    session.decoder.tracer.stage("prefill", started, first)
    session.decoder.tracer.stage("decode", first, ended)
    return GenerateResult(
        token_ids=tuple(produced),
        finish_reason=ids.finish_reason if kept is None else "loop",
        kept=len(produced) if kept is None else kept,
        prompt_tokens=len(prompt),
        prefill_s=first - started,
        decode_s=ended - first,
    )
