"""`stapes bench draft`: a right guess of an answer, against decoding it id by id."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from stapes.bench.measure import open_engine, rounds_in_turn
from stapes.bench.synthetic import SYNTHETIC, RandomTensors, activation_bits
from stapes.decoder import Decoder, GenerateOptions, Prompt, generate, load_weights
from stapes.graph import Engine, NativeExecutor
from stapes.options import RuntimeOptions
from stapes.weights import MatrixPacker


@dataclass(frozen=True)
class DraftBench:
    """What to run: an answer of `tokens` ids behind a prompt of `positions`, which is cached."""

    synthetic: str
    positions: int
    tokens: int
    runtime: RuntimeOptions
    rounds: int = 5
    instruction_set: str = "auto"


def run(bench: DraftBench) -> dict[str, object]:
    """Seconds with the answer as a draft and without one, in turn."""
    engine = open_engine(bench.runtime.threads, bench.instruction_set)
    decoder = _decoder(bench, engine)
    ids = np.random.default_rng(0).integers(0, decoder.spec.vocab_size, bench.positions)
    prompt, session = Prompt(ids.tolist()), decoder.new_session()
    plain = GenerateOptions(bench.tokens)
    answer = generate(session, prompt, plain).token_ids
    guessed = replace(plain, draft_ids=answer)
    works = [partial(generate, session, prompt, options) for options in (plain, guessed)]
    if any(work().token_ids != answer for work in works):
        raise AssertionError("The draft changed the answer.")
    plain_s, drafted_s = map(statistics.median, rounds_in_turn(works, bench.rounds))
    return {
        "bench": "draft",
        "synthetic": bench.synthetic,
        "weights": bench.runtime.decoder_format,
        "activation_bits": activation_bits(bench.synthetic, bench.runtime),
        "threads": engine.threads,
        "instruction_set": engine.instruction_set,
        "positions": bench.positions,
        "tokens": bench.tokens,
        "different_ids": len(set(answer)),
        "plain_s": round(plain_s, 4),
        "drafted_s": round(drafted_s, 4),
        "share": round(drafted_s / plain_s, 3),
    }


def _decoder(bench: DraftBench, engine: Engine) -> Decoder:
    """A decoder whose answers have no end."""
    config = SYNTHETIC[bench.synthetic]
    packer = MatrixPacker(engine, bench.runtime.decoder_format)
    weights = load_weights(RandomTensors(config), config.decoder, packer)
    spec = replace(config.decoder, eos_token_ids=frozenset())
    bits = activation_bits(bench.synthetic, bench.runtime)
    make_executor = partial(NativeExecutor, engine=engine, activation_bits=bits)
    return Decoder(spec, weights, make_executor, bench.runtime.kv)
