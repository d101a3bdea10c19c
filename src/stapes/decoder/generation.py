"""An answer under way: it says what is to be run next and takes what the run gave."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.loops import LoopDetector
from stapes.decoder.network import Want
from stapes.decoder.options import FinishReason, GenerateOptions, GenerateResult
from stapes.decoder.prompt import Prompt, check_ids, check_prompt, check_ranges
from stapes.decoder.rows import Results, Rows
from stapes.decoder.sampling import Sampler
from stapes.decoder.session import Session
from stapes.errors import ModelError, NumericError, RequestError
from stapes.graph import NoTracer


class Generation:
    """One answer of one session, a run at a time.

    Prefill, decoding and the check of a draft are the same thing here: the ids behind the prompt
    that are known or guessed, `_behind`, are run as far as they are not in the cache; each row that
    was right to run settles the next id. A guess that turns out wrong is cut off the cache.

    Nothing is computed behind the last id that can be returned. Use `generate` for one answer and
    `Batch` for several; this class is what they are made of.

    Args:
        session: its cache is cut back to what it has in common with the prompt.
        prompt: the whole of the sequence.
        options: see `GenerateOptions`.
        uniform: numbers in [0, 1) for drawing ids, in place of those that the seed gives.

    Raises:
        RequestError, CapacityError, NumericError: see `check_prompt`; nothing has been done then.
    """

    def __init__(
        self,
        session: Session,
        prompt: Prompt,
        options: GenerateOptions,
        uniform: Callable[[], float] | None = None,
    ) -> None:
        spec = session.decoder.spec
        self.session = session
        self.options = options
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.error: Exception | None = None
        self._prompt = check_prompt(prompt, options.max_new_tokens, spec)
        self._behind = self._usable(options.draft_ids, spec.eos_token_ids)
        self._sampler = None
        if options.sampling is not None and not options.sampling.plain:
            self._sampler = Sampler(options.sampling, spec.eos_token_ids, self._prompt.ids, uniform)
        self._loops = LoopDetector() if options.loop_detection else None
        self._kept: int | None = None
        self._logprobs: list[float] = []
        self._ranges = None
        if options.allowed_ids is not None:
            self._ranges = check_ranges(options.allowed_ids, spec.head_size)
        self._offered, self._accepted = len(self._behind), 0
        self._timed_out = False
        self._reused = session.reuse(self._prompt, options.cached_prefix)
        self._turn = session.answers
        self._started = time.perf_counter()
        self._first = self._ended = self._started
        self.prefill_share_s = self.decode_share_s = 0.0  # of shared runs, see `add_time`

    def _usable(self, draft: object, eos: frozenset[int]) -> list[int]:
        """The ids of a draft that can be checked: before an EOS, and one less than the budget.

        RequestError when it is no row of ids of the vocabulary.
        """
        ids = np.asarray(draft)
        if not ids.size:
            return []
        guess: list[int] = check_ids(ids, self.session.decoder.spec.vocab_size, "draft").tolist()
        ends = (place for place, token in enumerate(guess) if token in eos)
        return guess[: min(next(ends, len(guess)), self.options.max_new_tokens - 1)]

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to run."""
        return self.finish_reason is not None or self.error is not None

    @property
    def prefilled(self) -> bool:
        """Whether the prompt has been read and the first id is there."""
        return bool(self.token_ids)

    @property
    def want(self) -> Want:
        """What it needs of a run's picked rows."""
        return "next" if self._sampler is None and not self.options.logprobs else "logits"

    @property
    def wanted_rows(self) -> int:
        """Rows that are ready to run."""
        return len(self._prompt) + len(self._behind) - self.session.length

    def should_run(self) -> bool:
        """Whether to go on: False once finished; asks `should_cancel` and the clock."""
        if self.finished:
            return False
        self._check_turn()
        limit, cancel = self.options.max_seconds, self.options.should_cancel
        if limit is not None and time.perf_counter() - self._started >= limit:
            self._timed_out = True
            self._finish("cancelled")
        elif cancel is not None and cancel():
            self._finish("cancelled")
        return not self.finished

    def add_time(self, seconds: float, prefilled: bool) -> None:
        """Count its share, by rows, of a run that it had part in.

        Args:
            seconds: the share.
            prefilled: whether its prompt had been read before; see the property.
        """
        if prefilled:
            self.decode_share_s += seconds
        else:
            self.prefill_share_s += seconds

    def cancel(self) -> None:
        """End the answer with what is there."""
        if not self.finished:
            self._finish("cancelled")

    def fail(self, error: Exception) -> None:
        """End the answer with an error, which `result` raises."""
        self.error = error
        self._ended = time.perf_counter()

    def rows(self, limit: int) -> Rows:
        """The next rows to run, at most `limit`. CapacityError when the cache cannot hold them."""
        start, length = self.session.length, len(self._prompt)
        end = min(start + limit, length + len(self._behind))
        self.session.reserve(max(end, length), self._prompt.index.size)
        part = self._prompt.part(min(start, length), min(end, length))
        behind = self._behind[max(start - length, 0) : max(end - length, 0)]
        ids = np.concatenate([part.ids, np.array(behind, np.int32)])
        picked = np.arange(max(length - 1 - start, 0), end - start, dtype=np.int32)
        return Rows(self.session, ids, part.values, part.index, picked, self._ranges)

    def take(self, results: Results) -> None:
        """Take the results of a run of `rows`. NumericError for a NaN, naming the step."""
        first = self.session.length - results.next.size + 1 - len(self._prompt)
        for row in range(results.next.size):
            token, settled = self._choose(results, row), first + row
            self._settle(token)
            self._check_turn()
            if not self.finished and self._behind[settled : settled + 1] == [token]:
                self._accepted += 1
                continue
            self.session.truncate(len(self._prompt) + settled)
            self._behind[settled:] = [] if self.finished else [token]
            return

    def _check_turn(self) -> None:
        if self._turn != self.session.answers:
            raise RequestError(
                f"The session began another answer when this one had {len(self.token_ids)} ids; "
                "give each a session of its own."
            )

    def _choose(self, results: Results, row: int) -> int:
        greedy = int(results.next[row])
        if greedy < 0:
            raise NumericError(
                f"The logits of new token {len(self.token_ids)} hold a NaN: "
                "the model's numbers overflowed."
            )
        if results.logits is None:
            return greedy
        logits = results.logits[row]
        token = greedy if self._sampler is None else self._sampler.choose(logits)
        if self.options.logprobs:
            self._logprobs.append(log_probability(logits, token))
        return token

    def _settle(self, token: int) -> None:
        """The next id of the answer is known."""
        self._ended = time.perf_counter()
        if not self.token_ids:
            self._first = self._ended
        if token in self.session.decoder.spec.eos_token_ids:
            self._finish("stop")
            return
        self.token_ids.append(token)
        if self._loops is not None:
            self._kept = self._loops.feed(token)
        if self._kept is not None:
            self._finish("loop")
        elif len(self.token_ids) == self.options.max_new_tokens:
            self._finish("length")
        elif token >= self.session.decoder.spec.vocab_size:
            raise ModelError(
                f"New token {len(self.token_ids) - 1} is {token}, which cannot be read back: the "
                f"head has {self.session.decoder.spec.head_size} outputs, the vocabulary "
                f"{self.session.decoder.spec.vocab_size} ids."
            )
        if self.options.on_token is not None:
            self.options.on_token(token)

    def _finish(self, reason: FinishReason) -> None:
        self.finish_reason = reason
        self._ended = time.perf_counter()
        if not self.token_ids:
            self._first = self._ended

    def trace(self, tracer: NoTracer) -> None:
        """Let a tracer record the stages of a finished answer that was alone."""
        tracer.stage("prefill", self._started, self._first)
        tracer.stage("decode", self._first, self._ended)

    def result(self) -> GenerateResult:
        """The answer. Raises the error that ended it, and RequestError while it is under way."""
        if self.error is not None:
            raise self.error
        if self.finish_reason is None:
            raise RequestError(
                f"The answer is not finished: {len(self.token_ids)} ids are there so far."
            )
        count = len(self.token_ids)
        return GenerateResult(
            token_ids=tuple(self.token_ids),
            finish_reason=self.finish_reason,
            kept=count if self._kept is None else self._kept,
            prompt_tokens=len(self._prompt),
            reused_tokens=self._reused,
            draft_offered=self._offered,
            draft_accepted=self._accepted,
            logprobs=tuple(self._logprobs[:count]) if self.options.logprobs else None,
            timed_out=self._timed_out,
            prefill_s=self._first - self._started,
            decode_s=self._ended - self._first,
        )


def log_probability(logits: NDArray[np.float32], token: int) -> float:
    """The logarithm of softmax(logits)[token]: exponentials in f32, their sum in f64."""
    highest = logits.max()
    total = np.exp(logits - highest).sum(dtype=np.float64)
    return float(logits[token] - highest) - float(np.log(total))
