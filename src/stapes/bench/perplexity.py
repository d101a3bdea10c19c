"""How a decoder reads and continues ids: perplexity of a text, greedy answers side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.decoder import Decoder
from stapes.decoder.network import Want, build_plan
from stapes.errors import NumericError, RequestError
from stapes.graph import Engine, KvCacheLike, NativeExecutor
from stapes.options import ActivationBits

_ROWS = 128  # of one run: logits of a vocabulary of 150,000 take 0.6 MB a row

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Windows:
    """How a text is cut: windows of `size` tokens, each `stride` tokens behind the last one.

    Every token is scored once, in the first window that has it, given all tokens before it in that
    window. So all but those of the first window see at least size - stride tokens.
    """

    size: int = 512
    stride: int = 256

    def __post_init__(self) -> None:
        if not 1 <= self.stride < self.size:
            raise RequestError(
                f"Windows of {self.size} tokens must advance by 1 to {self.size - 1} tokens, "
                f"not {self.stride}."
            )

    def cut(self, tokens: int) -> Iterator[tuple[int, int, int]]:
        """The (start, first scored, end) of every window; token 0 has nothing before it."""
        scored = 1
        for start in range(0, tokens, self.stride):
            end = min(start + self.size, tokens)
            yield start, scored, end
            if end == tokens:
                return
            scored = end


class PlanRunner:
    """Runs a decoder's plans on sequences that begin with nothing.

    Args:
        decoder: spec, weights and the format of the KV cache.
        engine: threads and kernels.
        activation_bits: beside q8 weights.
    """

    def __init__(
        self, decoder: Decoder, engine: Engine, activation_bits: ActivationBits = 13
    ) -> None:
        self._spec = decoder.spec
        self._kv = decoder.kv
        self._engine = engine
        self._bits: ActivationBits = activation_bits
        self._weights = decoder.weights
        self._no_values = np.zeros((0, decoder.spec.hidden_size), np.float32)

    def negative_log_likelihoods(self, ids: Ids, windows: Windows) -> NDArray[np.float64]:
        """-log p [n - 1] f64 of every id but the first, given those before it in its window.

        Raises:
            RequestError: fewer than two ids. NumericError: a logit is not finite.
        """
        if ids.size < 2:
            raise RequestError(f"A text of {ids.size} tokens has no perplexity; 2 are needed.")
        executor = self._executor("logits")
        return np.concatenate(
            [
                self._window(executor, ids[start:end], scored - start)
                for start, scored, end in windows.cut(ids.size)
            ]
        )

    def _window(self, executor: NativeExecutor, ids: Ids, scored: int) -> NDArray[np.float64]:
        """-log p of ids[scored:]; row i of the logits speaks of id i + 1."""
        cache, found = self._new_cache(executor, ids.size), []
        for start in range(0, ids.size - 1, _ROWS):
            end = min(start + _ROWS, ids.size - 1)
            positions = np.arange(start, end, dtype=np.int32)
            picked = np.arange(max(0, scored - 1 - start), end - start, dtype=np.int32)
            logits = self._run(
                executor, ids[start:end], positions, np.zeros_like(positions), [cache], picked
            )["logits"]
            found.append(target_nll(logits, ids[start + 1 : end + 1][picked]))
        return np.concatenate(found)

    def greedy(self, prompts: Sequence[Ids], new_tokens: int) -> Ids:
        """Greedy continuations [prompts, new_tokens], side by side; an end of text ends none.

        Raises:
            NumericError: the logits hold a NaN.
        """
        executor = self._executor("next")
        caches = [self._new_cache(executor, ids.size + new_tokens) for ids in prompts]
        sizes = [ids.size for ids in prompts]
        ids = np.concatenate(prompts)
        positions = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
        rows = np.arange(len(prompts), dtype=np.int32)
        sequences, picked = np.repeat(rows, sizes), np.cumsum(sizes, dtype=np.int32) - 1
        made = []
        for step in range(new_tokens):
            outputs = self._run(executor, ids, positions, sequences, caches, picked)
            ids = outputs["next"].astype(np.int32)
            if (ids < 0).any():
                raise NumericError(f"The logits of new token {step} hold a NaN.")
            made.append(ids)
            positions = np.array(sizes, np.int32) + step
            sequences = picked = rows
        return np.stack(made, axis=1)

    def _executor(self, want: Want) -> NativeExecutor:
        plan = build_plan(self._spec, self._weights, want)
        return NativeExecutor(plan, self._engine, activation_bits=self._bits)

    def _new_cache(self, executor: NativeExecutor, positions: int) -> KvCacheLike:
        spec = self._spec
        cache = executor.new_cache(
            spec.num_hidden_layers, spec.num_key_value_heads, spec.head_dim, self._kv
        )
        cache.reserve(positions)
        return cache

    def _run(
        self,
        executor: NativeExecutor,
        ids: Ids,
        positions: Ids,
        sequences: Ids,
        caches: Sequence[KvCacheLike],
        picked: Ids,
    ) -> dict[str, NDArray[np.float32] | NDArray[np.int32]]:
        inputs: dict[str, NDArray[np.float32] | NDArray[np.int32]] = {
            "ids": ids,
            "sequences": sequences,
            "positions": positions,
            "values": self._no_values,
            "index": ids[:0],
            "picked": picked,
        }
        return executor.run(inputs, caches)


def target_nll(
    logits: NDArray[np.float32] | NDArray[np.int32], targets: Ids
) -> NDArray[np.float64]:
    """-log softmax(logits)[target] [n] f64 of logits [n, vocabulary], computed in f64.

    Raises:
        NumericError: a logit is not finite.
    """
    if not np.isfinite(logits).all():
        raise NumericError(f"{(~np.isfinite(logits)).sum()} logits of the text are not finite.")
    wide = logits.astype(np.float64)
    chosen = wide[np.arange(targets.size), targets]
    highest = wide.max(axis=1)
    wide -= highest[:, None]
    return np.asarray(np.log(np.exp(wide, out=wide).sum(axis=1)) + highest - chosen)


def perplexity(negative_log_likelihoods: NDArray[np.float64]) -> float:
    """What a mean of these makes: e to its power."""
    return float(np.exp(negative_log_likelihoods.mean()))
