"""`stapes bench drift`: how soon a weight format draws other ids than f32 does, seed for seed.

A drawn answer goes its own way once a single id differs, however small the cause. So this counts
how far the answers of the same seeds stay equal; it cannot say which of two is better. Beside that
it tells how much probability moves from id to id when the same ids have come before.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stapes.bench.measure import open_engine
from stapes.bench.synthetic import SAMPLING, RandomTensor, RandomTensors, decoder_spec
from stapes.decoder import Batch, Decoder, GenerateOptions, Prompt, SamplingOptions, load_weights
from stapes.decoder.prompt import check_prompt
from stapes.graph import NativeExecutor
from stapes.models.vevo2.autoregressive.load import load_vevo2
from stapes.models.vevo2.autoregressive.options import CodeOptions
from stapes.models.vevo2.autoregressive.prompt import CodeRequest
from stapes.options import KvFormat, RuntimeOptions, WeightFormat
from stapes.weights import MatrixPacker
from stapes.weights.matrix import f32_to_bf16

SYNTHETIC = "vevo2-ar"
_PROMPT_TOKENS = 120  # of the synthetic model: about what a short text and 6 s of style take
_TEXT = "The evening train leaves at seven, and nobody on the platform is in a hurry."

_COMPARED_ROWS = 50  # of the first answer

F32 = NDArray[np.float32]
Answers = list[tuple[int, ...]]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class DriftBench:
    """What to compare.

    Attributes:
        formats: of the weights, each with the cache format `kv`.
        seeds: how many answers of each format.
        tokens: ids of an answer, at most.
        model: a folder of Vevo2; None: a model of its size with random weights.
    """

    formats: tuple[WeightFormat, ...]
    seeds: int = 8
    tokens: int = 60
    kv: KvFormat = "f16"
    threads: int | None = None
    model: str | None = None


@dataclass(frozen=True, eq=False)
class Drawn:
    """What one format gives.

    Attributes:
        answers: ids, seed by seed.
        probabilities: [rows, vocab_size], behind the last ids of the first answer of f32.
    """

    answers: Answers
    probabilities: F32


class _DistinctRows(RandomTensors):
    """Random weights whose embedding has no two equal rows.

    Those of `RandomTensors` repeat every 32,768 rows, and of ids with equal logits any is the last
    of the 25 likeliest.
    """

    def __getitem__(self, name: str) -> RandomTensor:
        tensor = super().__getitem__(name)
        if name != self._embedding:
            return tensor
        sizes = np.random.default_rng(1).uniform(0.8, 1.2, (len(tensor.words), 1))
        return RandomTensor(f32_to_bf16(tensor.to_f32() * sizes.astype(np.float32)))


def run(bench: DriftBench, progress: Progress) -> dict[str, object]:
    """The JSON object, with a row for each format; f32 weights and an f32 cache are the measure.

    Raises:
        ModelError: the model cannot be used. CapacityError: it does not fit.
    """
    exact: Drawn | None = None
    rows: list[dict[str, object]] = []
    pairs = [("f32", "f32"), *((weights, bench.kv) for weights in bench.formats)]
    for weights, kv in dict.fromkeys(pairs):
        progress(f"Drawing {bench.seeds} answers with {weights} weights and a cache of {kv}")
        drawn = _drawn(bench, RuntimeOptions(weights, kv, bench.threads), exact)
        exact = exact or drawn
        moved = moved_probability(drawn.probabilities, exact.probabilities)
        figures = compared(drawn.answers, exact.answers)
        rows.append({"weights": weights, "kv": kv, **figures, "moved_probability": moved})
    return {
        "bench": "drift",
        "model": SYNTHETIC if bench.model is None else Path(bench.model).name,
        "random_weights": bench.model is None,
        "seeds": bench.seeds,
        "tokens": bench.tokens,
        "formats": rows,
    }


def compared(answers: Answers, exact: Answers) -> dict[str, object]:
    """How many answers are those of f32, and how many first ids of the middle one are."""
    equal = [_equal_ids(*both) for both in zip(answers, exact, strict=True)]
    return {
        "same_answers": sum(a == b for a, b in zip(answers, exact, strict=True)),
        "equal_ids_least": min(equal),
        "equal_ids_median": statistics.median(equal),
    }


def moved_probability(found: F32, exact: F32) -> float:
    """Half the sum of |p - q| over all ids, on average over the rows: 0 where all are equal."""
    return round(float(np.abs(found - exact).sum(axis=1, dtype=np.float64).mean() / 2), 6)


def _equal_ids(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    shorter = min(len(first), len(second))
    return next((place for place, (a, b) in pairs if a != b), shorter)


def _drawn(bench: DriftBench, options: RuntimeOptions, exact: Drawn | None) -> Drawn:
    decoder, prompt, sampling = _model(bench, options)
    batch = Batch(decoder)
    joined = [
        batch.join(
            decoder.new_session(),
            prompt,
            GenerateOptions(bench.tokens, sampling=replace(sampling, seed=seed)),
        )
        for seed in range(bench.seeds)
    ]
    batch.run()
    answers = [generation.result().token_ids for generation in joined]
    first = (exact.answers if exact else answers)[0]
    return Drawn(answers, _probabilities(decoder, [*prompt.token_ids, *first]))


def _probabilities(decoder: Decoder, ids: list[int]) -> F32:
    """Softmax of the logits behind each of the last ids, as many as there can be of an answer."""
    whole = check_prompt(Prompt(ids), 1, decoder.spec)
    picked = np.arange(max(len(ids) - _COMPARED_ROWS, 0), len(ids), dtype=np.int32)
    logits = decoder.new_session().prefill(whole, picked, "logits")
    weights = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float32)
    probabilities: F32 = weights / weights.sum(axis=1, keepdims=True)
    return probabilities


def _model(bench: DriftBench, options: RuntimeOptions) -> tuple[Decoder, Prompt, SamplingOptions]:
    """A decoder, what it reads, and how it is sampled."""
    if bench.model is not None:
        model = load_vevo2(bench.model, options)
        sampling = CodeOptions().sampling(model.repetition_penalty)
        return model.decoder, model.encode(CodeRequest(_TEXT)), sampling
    engine = open_engine(options.threads, "auto")
    spec = decoder_spec(SYNTHETIC)
    packer = MatrixPacker(engine, options.decoder_format)
    weights = load_weights(_DistinctRows(spec), spec, packer)
    ids = np.random.default_rng(0).integers(0, spec.vocab_size, _PROMPT_TOKENS)
    decoder = Decoder(spec, weights, partial(NativeExecutor, engine=engine), options.kv)
    return decoder, Prompt(ids.tolist()), SAMPLING[SYNTHETIC]
