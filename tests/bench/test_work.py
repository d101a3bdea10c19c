"""What a stage must compute and read, counted once more by other means."""

from __future__ import annotations

import time

import numpy as np
import pytest

from bench.test_asr import small  # noqa: F401  (a fixture)
from stapes.bench.asr import AsrBench, build
from stapes.bench.clock import OpClock
from stapes.bench.measure import rounds_in_turn
from stapes.bench.synthetic import SYNTHETIC
from stapes.bench.work import (
    cache_bytes,
    encode_bytes,
    encode_flops,
    prefill_bytes,
    prefill_flops,
    step_bytes,
    step_flops,
)
from stapes.decoder import Prompt
from stapes.decoder.prompt import check_prompt
from stapes.graph import Tracer
from stapes.models.qwen3_asr.encoder_weights import expected_tensors
from stapes.options import RuntimeOptions


def encoder_tensors(config):
    return expected_tensors(config.encoder, config.encoder_names)


@pytest.fixture
def networks(small):  # noqa: F811
    return build(AsrBench("qwen3-asr-0.6b", 1.0, 1, RuntimeOptions("q8")))[0]


def test_a_prefill_multiplies_every_weight_but_the_last_layers(small):  # noqa: F811
    rows, layer = 5, 64 * (128 + 2 * 64)
    after = 64 * 128 + 3 * 64 * 96
    attention = 2 * 2 * 128 * (1 + 2 + 3 + 4 + 5)  # query and probability, layers, heads, keys
    products = rows * (2 * layer + after) + attention + after + 64 * small.decoder.vocab_size
    assert prefill_flops(small.decoder, rows) == 2 * products


def test_the_encoder_by_hand(small):  # noqa: F811
    stem = (50 * 64 * 9 + 25 * 32 * 9 * 32 + 13 * 16 * 9 * 32) * 32 + 13 * 16 * 32 * 64
    token = 2 * (4 * 64 * 64 + 2 * 64 * 96) + 64 * 64 + 64 * 64
    assert encode_flops(small.encoder, 100) == 2 * (stem + 13 * token + 2 * 2 * 64 * 13 * 13)
    beyond = 2 * 2 * 64 * (104 * 104 + 13 * 13)  # two windows
    assert encode_flops(small.encoder, 900) == 2 * (9 * stem + 117 * token + beyond)


def test_the_published_encoder_is_of_the_known_size():
    """30 s: 9 GFLOP a second of audio in the stem, and 180 million weights in the body."""
    spec = SYNTHETIC["qwen3-asr-0.6b"].encoder
    assert encode_flops(spec, 3000) == pytest.approx(270e9, rel=0.3)


def test_a_step_reads_the_weights_once_and_every_cache(networks):
    decoder = networks.decoder
    matrices = sum(matrix.nbytes for matrix in decoder.weights.matrices())
    position = 2 * 2 * 2 * 32 * 2  # layers, keys and values, heads, head_dim, f16
    assert cache_bytes(decoder, 1000) == 1000 * position
    assert step_bytes(decoder, 100, 3) == matrices + 3 * 100 * position


def test_what_a_prefill_and_the_encoder_read(networks, small):  # noqa: F811
    decoder = networks.decoder
    head = decoder.weights.head.nbytes
    layers = decoder.weights.nbytes - head
    assert prefill_bytes(decoder, 256) == layers + head
    assert prefill_bytes(decoder, 257) == 2 * layers + head
    values = sum(np.prod(m) for n, m in encoder_tensors(small).items() if len(m) > 1)
    assert encode_bytes(networks.encoder) == pytest.approx(values * 34 / 32, rel=0.03)


def test_a_step_computes_with_every_weight_once(small):  # noqa: F811
    matrices = 2 * (64 * (128 + 2 * 64) + 64 * 128 + 3 * 64 * 96) + 64 * small.decoder.vocab_size
    attention = 2 * 2 * 128 * 50
    assert step_flops(small.decoder, 50, 3) == 3 * 2 * (matrices + attention)


def test_the_clock_adds_up_to_what_the_tracer_says(networks):
    tracer = Tracer()
    clock = OpClock(tracer)
    networks.decoder._next._tracer = clock
    prompt = check_prompt(Prompt([1, 2, 3]), 1, networks.decoder.spec)
    networks.decoder.new_session().prefill(prompt)
    seconds = clock.take()
    traced = tracer.seconds_by_op()
    assert set(seconds) == set(traced)
    assert seconds["linear"] == pytest.approx(traced["linear"], rel=1e-6)
    assert clock.take() == {}


def test_threads_of_what_ran_before_are_given_time_to_sleep(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    rounds_in_turn([lambda: slept.append(0.0)], 1)
    assert slept == [0.2, 0.0, 0.2, 0.0]


def test_work_is_done_in_turn_and_the_first_round_is_not_counted():
    seen: list[str] = []
    works = [lambda: seen.append("a"), lambda: seen.append("b")]
    columns = rounds_in_turn(works, 2, lambda: seen.append("|"))
    assert "".join(seen) == "ab|ab|ab|"
    assert np.array(columns).shape == (2, 2)
