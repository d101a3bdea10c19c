"""A prompt: token ids, and embedding rows that take the place of some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.spec import DecoderSpec
from stapes.errors import CapacityError, NumericError, RequestError


@dataclass(frozen=True, eq=False)
class Injection:
    """Embedding rows for a prompt.

    Attributes:
        values: [m, hidden_size] real numbers, finite as f32. What is used of them is copied when
            an answer begins.
        positions: m distinct prompt positions in any order, counted from 0, whose looked-up
            embeddings the values replace.
    """

    values: NDArray[np.float32]
    positions: Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Prompt:
    """What the decoder reads: the whole of a sequence, each time.

    It is checked when an answer begins; see `generate` for the errors.

    Attributes:
        token_ids: [n] whole numbers from 0 to vocab_size - 1, at least one; those under injected
            rows are not looked up, but compared when a session looks for what it can use again.
        injection: rows in place of the embeddings of some of them, or None.
    """

    token_ids: Sequence[int]
    injection: Injection | None = None

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, eq=False)
class CheckedPrompt:
    """A prompt in arrays: ids [n] i32, values [m, hidden] f32 in the order of index [m] i32."""

    ids: NDArray[np.int32]
    values: NDArray[np.float32]
    index: NDArray[np.int32]

    def __len__(self) -> int:
        return int(self.ids.size)

    def part(self, start: int, end: int) -> CheckedPrompt:
        """Positions [start, end), counted from `start`."""
        first, last = np.searchsorted(self.index, [start, end])
        index = self.index[first:last] - np.int32(start)
        return CheckedPrompt(self.ids[start:end], self.values[first:last], index)


def check_prompt(prompt: Prompt, max_new_tokens: int, spec: DecoderSpec) -> CheckedPrompt:
    """Check a prompt before any work is done, in the order that decoder users rely on.

    Raises:
        RequestError: empty prompt, ids outside the vocabulary, a budget that is not positive,
            shapes that disagree, positions outside the prompt or given twice.
        CapacityError: prompt and budget exceed max_position_embeddings.
        NumericError: an injected value is not finite.
    """
    if not len(prompt):
        raise RequestError("The prompt is empty: at least one token is needed.")
    ids = check_ids(prompt.token_ids, spec.vocab_size, "prompt")
    if max_new_tokens < 1:
        raise RequestError(f"max_new_tokens must be positive, not {max_new_tokens}.")
    if len(prompt) + max_new_tokens > spec.max_position_embeddings:
        raise CapacityError(
            f"A prompt of {len(prompt)} tokens and {max_new_tokens} new ones need "
            f"{len(prompt) + max_new_tokens} positions, but the model has "
            f"{spec.max_position_embeddings}."
        )
    if prompt.injection is None:
        empty = np.zeros((0, spec.hidden_size), np.float32)
        return CheckedPrompt(ids, empty, np.zeros(0, np.int32))
    return CheckedPrompt(ids, *_checked_injection(prompt.injection, ids.size, spec.hidden_size))


def check_ids(token_ids: object, vocab_size: int, whose: str) -> NDArray[np.int32]:
    """Token ids as an array [n] i32; RequestError unless all of them lie in the vocabulary."""
    ids = np.asarray(token_ids)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise RequestError(
            f"The {whose}'s ids must be whole numbers in one row, not {ids.dtype} of shape "
            f"{ids.shape}."
        )
    outside = np.flatnonzero((ids < 0) | (ids >= vocab_size))
    if outside.size:
        first = outside[0]
        raise RequestError(
            f"Token {ids[first]} at position {first} of the {whose} is outside the vocabulary of "
            f"{vocab_size}."
        )
    return ids.astype(np.int32)


def check_ranges(ranges: object, logits_size: int) -> NDArray[np.int32]:
    """[start, end) ranges of ids as an array [k, 2] i32, ascending, neighbours joined.

    Raises RequestError unless there is one, all hold ids of the head, and none overlaps another.
    """
    pairs = np.asarray(ranges)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise RequestError(
            f"allowed_ids must be pairs of whole numbers, at least one, not {pairs.dtype} of shape "
            f"{pairs.shape}."
        )
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    starts, ends = pairs.T
    bad = np.flatnonzero((starts < 0) | (starts >= ends) | (ends > logits_size))
    if bad.size:
        start, end = pairs[bad[0]]
        raise RequestError(
            f"The allowed ids {start} to {end} (exclusive) are empty or outside the {logits_size} "
            "ids that the model can give."
        )
    if (starts[1:] < ends[:-1]).any():
        raise RequestError(f"Of the {len(pairs)} ranges of allowed_ids some overlap.")
    apart = starts[1:] > ends[:-1]
    joined = np.stack([starts[np.r_[True, apart]], ends[np.r_[apart, True]]], axis=1)
    return joined.astype(np.int32)


def _checked_injection(
    injection: Injection, length: int, hidden_size: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    values, positions = np.asarray(injection.values), np.asarray(injection.positions)
    if positions.size == 0:
        positions = positions.astype(np.int64)
    if values.shape != (positions.size, hidden_size) or positions.ndim != 1:
        raise RequestError(
            f"{positions.size} injected positions need values of shape "
            f"({positions.size}, {hidden_size}), not {values.shape}."
        )
    if values.dtype.kind not in "fiu":
        raise RequestError(f"Injected values must be real numbers, not {values.dtype}.")
    if not np.issubdtype(positions.dtype, np.integer):
        raise RequestError(f"Injected positions must be whole numbers, not {positions.dtype}.")
    outside = positions[(positions < 0) | (positions >= length)]
    if outside.size:
        raise RequestError(
            f"Injected position {outside[0]} is outside the prompt of {length} tokens."
        )
    if np.unique(positions).size != positions.size:
        raise RequestError(f"The {positions.size} injected positions are not distinct.")
    with np.errstate(over="ignore"):  # what is too large for f32 is not finite below
        values = values.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if bad.size:
        raise NumericError(
            f"{bad.size} of {positions.size} injected rows are not finite, "
            f"first the one for position {positions[bad[0]]}."
        )
    order = np.argsort(positions)
    return np.ascontiguousarray(values[order]), positions[order].astype(np.int32)
