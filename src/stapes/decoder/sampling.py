"""Sampling: from the logits of one row to the next id, in the order and with the sets of usage.

Each new token goes through these, everything in f32:

1. repetition penalty over the distinct ids of prompt and output: x * p below zero, else x / p;
2. the ids that end an answer are ruled out until there are min_new_tokens new ones;
3. temperature: x / t;
4. top-k: what is less than the k-th largest score is dropped, so ties with it stay;
5. top-p: of the softmax of what is left, in ascending order, the ids whose cumulative sum is at
   most 1 - p are dropped; the last one always stays, and of equal scores those with lower ids go
   first. Sums are f64, each rounded to f32 and compared with 1 - p in f32;
6. the draw, by the inverse of the cumulative distribution: weights exp(x - max) in f32 of what is
   left, in the order of the vocabulary, summed up in f64. With a number u from [0, 1), the id is
   the first whose sum exceeds u times the whole. Each token takes one u, the next `random()` of
   numpy's Generator(PCG64(seed)).

With top_k = 1 or temperature 0 there are no steps 3 to 6: the first maximum is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.errors import NumericError, RequestError

F32 = NDArray[np.float32]
Ids = NDArray[np.intp]

_LOWEST = np.finfo(np.float32).min  # every score but -inf reaches it
_SMALLEST = float(np.finfo(np.float32).tiny)  # a smaller divisor is no number of full precision
_LARGEST = float(np.finfo(np.float32).max)
_GROUP = 64  # scores per group: few enough for tight bounds, enough to leave few maxima to sort


@dataclass(frozen=True)
class SamplingOptions:
    """How the next id is chosen.

    Attributes:
        temperature: divides the scores; 0 is greedy.
        top_k: how many of the highest scores may be drawn; 1 is greedy, None is all.
        top_p: share of the probability that may be drawn, from 0 (one id) to 1 (all).
        repetition_penalty: what scores of ids that were there already are divided by (multiplied,
            when negative); 1 changes nothing.
        min_new_tokens: how many new ids come before one may end the answer.
        seed: makes the answer repeat; None gives another one each time.

    Raises:
        RequestError: naming the field and its value.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    min_new_tokens: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        t, p = self.temperature, self.repetition_penalty
        rule = f"a number from {_SMALLEST:.3g} to {_LARGEST:.3g}"
        self._require("temperature", _is_number(t) and (t == 0 or _is_divisor(t)), f"0 or {rule}")
        self._require("repetition_penalty", _is_number(p) and _is_divisor(p), rule)
        share = self.top_p
        self._require("top_p", _is_number(share) and 0 <= share <= 1, "a number from 0 to 1")
        k = self.top_k
        self._require("top_k", k is None or _is_whole(k, 1), "a positive whole number or None")
        self._require("min_new_tokens", _is_whole(self.min_new_tokens, 0), "a whole number from 0")
        seeded = self.seed is None or _is_whole(self.seed, 0)
        self._require("seed", seeded, "a whole number from 0 or None")

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise RequestError(f"{name} must be {rule}, not {getattr(self, name)!r}.")

    @property
    def plain(self) -> bool:
        """Whether the choice is the first maximum of the logits as they are."""
        return self.greedy and self.repetition_penalty == 1 and self.min_new_tokens == 0

    @property
    def greedy(self) -> bool:
        """Whether the highest score is taken and nothing is drawn."""
        return self.temperature == 0 or self.top_k == 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_divisor(value: float) -> bool:
    return _SMALLEST <= value <= _LARGEST


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


class Sampler:
    """Chooses the ids of one answer, one after the other.

    Args:
        options: how.
        eos_token_ids: ids that end an answer. Some may lie outside the head.
        prompt_ids: [n] i32, what the repetition penalty counts as said. Some may lie outside the
            head: those can not come again.
        uniform: gives a number from [0, 1) for each draw, in place of the seeded generator.
    """

    def __init__(
        self,
        options: SamplingOptions,
        eos_token_ids: Collection[int],
        prompt_ids: NDArray[np.int32],
        uniform: Callable[[], float] | None = None,
    ) -> None:
        self.options = options
        self._eos = np.array(sorted(eos_token_ids), np.intp)
        self._said = np.unique(prompt_ids).astype(np.intp)
        generator = np.random.Generator(np.random.PCG64(options.seed))
        self._uniform = uniform or generator.random
        self._step = 0

    def choose(self, logits: F32) -> int:
        """Choose the next id, which may end the answer; called once per new token, in order.

        Args:
            logits: [logits_size] f32, left as they are.

        Raises:
            NumericError: a NaN anywhere in the logits, or no id that can be drawn; names the step.
            RequestError: an injected `uniform` gave a number outside [0, 1).
        """
        options = self.options
        if np.isnan(logits.max()):
            raise NumericError(
                f"The logits of new token {self._step} hold a NaN: the model's numbers overflowed."
            )
        scores = self._scores(logits)
        if options.greedy:
            token = int(scores.argmax())
        else:
            kept = kept_ids(scores, options.top_k, options.top_p)
            token = int(kept[_draw(scores[kept], self._next_uniform())])
        self._note(token)
        return token

    def _scores(self, logits: F32) -> F32:
        """Steps 1 to 3; with a maximum that can be chosen."""
        options = self.options
        scores = np.array(logits, np.float32)
        with np.errstate(over="ignore"):  # what is too large for f32 is not finite below
            if options.repetition_penalty != 1:
                _penalise(scores, self._said, np.float32(options.repetition_penalty))
            if self._step < options.min_new_tokens:
                scores[self._eos[self._eos < scores.size]] = -np.inf
            if not options.greedy and options.temperature != 1:
                scores /= np.float32(options.temperature)
        best = float(scores.max())
        if best == -np.inf or (best == np.inf and not options.greedy):
            raise NumericError(
                f"No id can be chosen as new token {self._step}: the highest of {scores.size} "
                f"scores is {best} after penalty, min_new_tokens and temperature."
            )
        return scores

    def _next_uniform(self) -> float:
        uniform = self._uniform()
        if not 0 <= uniform < 1:
            raise RequestError(f"uniform must give numbers from [0, 1), not {uniform!r}.")
        return uniform

    def _note(self, token: int) -> None:
        self._step += 1
        if self.options.repetition_penalty != 1 and not (self._said == token).any():
            self._said = np.append(self._said, token)


def _penalise(scores: F32, said: Ids, penalty: np.float32) -> None:
    said = said[said < scores.size]
    before = scores[said]
    scores[said] = np.where(before < 0, before * penalty, before / penalty)


def kept_ids(scores: F32, top_k: int | None, top_p: float) -> Ids:
    """The ids that may be drawn, ascending: top-k, then top-p of what that leaves.

    Args:
        scores: [logits_size] f32 with a finite maximum; an id of score -inf is never kept.
        top_k: how many of the highest scores; None keeps all.
        top_p: share of the probability.
    """
    least = _LOWEST
    if top_k is not None and top_k < scores.size:
        least = max(least, _kth_largest(scores, top_k))
    kept = np.flatnonzero(scores >= least)
    return kept[_top_p_mask(scores[kept], top_p)] if top_p < 1 else kept


def _kth_largest(scores: F32, k: int) -> np.float32:
    groups = scores.size // _GROUP
    if k <= groups:
        # k groups have maxima of at least `bound`: so have the k largest scores, and few others.
        maxima = scores[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
        bound = np.partition(maxima, groups - k)[groups - k]
        scores = scores[scores >= bound]
    return np.float32(np.partition(scores, scores.size - k)[scores.size - k])


def _top_p_mask(scores: F32, top_p: float) -> NDArray[np.bool_]:
    best = scores.max()
    weights = np.exp(scores - best)
    total = np.float32(weights.sum(dtype=np.float64))
    # All ids that are as unlikely as these have half of 1 - p between them, so that they are
    # dropped for certain: their order does not matter, and sorting is most of the work.
    unlikely = weights < total * np.float32(0.5 * (1 - top_p) / scores.size)
    before = (weights[unlikely] / total).sum(dtype=np.float64)
    ordered = np.sort(scores[~unlikely])
    probabilities = np.exp(ordered - best) / total
    cumulative = (before + np.cumsum(probabilities, dtype=np.float64)).astype(np.float32)
    removed = np.searchsorted(cumulative[:-1], np.float32(1 - top_p), side="right")
    least = ordered[removed]
    mask: NDArray[np.bool_] = scores >= least
    equal_removed = removed - np.searchsorted(ordered, least)
    mask[np.flatnonzero(scores == least)[:equal_removed]] = False
    return mask


def _draw(scores: F32, uniform: float) -> int:
    """Which of the scores is drawn; one of weight 0 never is, as `uniform` is less than 1."""
    cumulative = np.cumsum(np.exp(scores - scores.max()), dtype=np.float64)
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
