"""What is asked of one generation, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from stapes.decoder.sampling import SamplingOptions
from stapes.errors import RequestError

FinishReason = Literal["stop", "length", "loop", "cancelled"]


@dataclass(frozen=True)
class GenerateOptions:
    """What is asked of one generation.

    Attributes:
        max_new_tokens: most ids that may be generated, at least 1, the one that ends the answer
            included; together with the prompt at most max_position_embeddings.
        loop_detection: end an answer that repeats itself without end, with reason "loop".
        sampling: how ids are drawn; None takes the likeliest (greedy).
        draft_ids: a guess of the answer. It changes how fast the answer comes, never the answer:
            the guess is computed as one block, and what is right of it need not be decoded.
        logprobs: also return the natural logarithm of the model's probability of each id, before
            temperature and the other sampling options.
        max_seconds: wall-clock limit, looked at between runs; the answer so far is returned with
            reason "cancelled" and `timed_out`.
        on_token: called with every new id. What it raises ends the generation and is passed on.
        should_cancel: asked between runs; True ends the answer with reason "cancelled".
        allowed_ids: [start, end) ranges of the ids that may be generated, sampled or greedy; None
            allows all. For all other ids the model's logits count as -inf, log-probabilities are
            those among the allowed ones. Where no EOS is among them, the answer ends by its length.
        cached_prefix: how many first positions of the prompt the caller knows to be in the
            session's cache. A promise that does not hold is a RequestError.

    Raises:
        RequestError: max_new_tokens is no whole number, or max_seconds no positive one. The other
            values are checked, by `generate` and `Batch.join`, when the model is known.
    """

    max_new_tokens: int
    loop_detection: bool = False
    sampling: SamplingOptions | None = None
    draft_ids: Sequence[int] = ()
    logprobs: bool = False
    max_seconds: float | None = None
    on_token: Callable[[int], None] | None = field(default=None, compare=False)
    should_cancel: Callable[[], bool] | None = field(default=None, compare=False)
    cached_prefix: int | None = None
    allowed_ids: Sequence[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        count = self.max_new_tokens
        if isinstance(count, bool) or not isinstance(count, int | np.integer):
            raise RequestError(f"max_new_tokens must be a whole number, not {count!r}.")
        limit = self.max_seconds
        if limit is not None and not (np.isfinite(limit) and limit > 0):
            raise RequestError(f"max_seconds must be a positive number of seconds, not {limit!r}.")


@dataclass(frozen=True)
class GenerateResult:
    """A generated answer.

    Attributes:
        token_ids: new ids; the EOS that ended the answer is not among them.
        finish_reason: "stop" (an EOS came), "length" (the budget is used up), "loop", "cancelled".
        kept: how many first ids remain when a loop's repeats are dropped; all of them otherwise.
        prompt_tokens: length of the prompt.
        reused_tokens: how many first tokens of it were in the cache already.
        draft_offered, draft_accepted: ids of the draft that were tried, and that were right.
        logprobs: one for each id, when they were asked for.
        timed_out: the wall-clock limit ended the answer.
        prefill_s: seconds to the first id. decode_s: seconds for the rest.
    """

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    kept: int
    prompt_tokens: int
    reused_tokens: int = field(default=0, compare=False)
    draft_offered: int = field(default=0, compare=False)
    draft_accepted: int = field(default=0, compare=False)
    logprobs: tuple[float, ...] | None = None
    timed_out: bool = False
    prefill_s: float = field(default=0.0, compare=False)
    decode_s: float = field(default=0.0, compare=False)

    @property
    def computed_tokens(self) -> int:
        """Tokens of the prompt that had to be computed."""
        return self.prompt_tokens - self.reused_tokens

    @property
    def per_token_s(self) -> float:
        """Mean seconds of a new token behind the first; 0 when there is none."""
        return self.decode_s / (len(self.token_ids) - 1) if len(self.token_ids) > 1 else 0.0
