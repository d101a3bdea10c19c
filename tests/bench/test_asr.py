"""`stapes bench asr`: what it runs, and what it prints."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

from stapes.bench import asr as bench_asr
from stapes.bench.asr import AsrBench, build, median_figures, noise, run_once
from stapes.bench.synthetic import SYNTHETIC, SYNTHETIC_DECODERS, RandomTensors
from stapes.cli.bench_options import SYNTHETIC_DECODER_NAMES, SYNTHETIC_NAMES
from stapes.cli.root import root
from stapes.decoder import expected_tensors as decoder_tensors
from stapes.models.qwen3_asr.config import EncoderSpec, Qwen3AsrConfig
from stapes.models.qwen3_asr.networks import expected_tensors
from stapes.options import RuntimeOptions

FIELDS = [
    *("bench", "synthetic", "seconds", "tokens", "weights", "activation_bits", "threads"),
    *("load_s", "mel_s"),
    *("encode_s", "prefill_s", "decode_ms_per_token", "total_s", "rtf", "peak_rss_mb"),
    *("encode_bytes", "encode_gflop", "encode_share_of_sgemm", "prefill_rows"),
    *("prefill_bytes", "prefill_gflop", "prefill_share_of_sgemm"),
    *("sgemm_gflops", "instruction_set"),
]


@pytest.fixture
def small(monkeypatch):
    """A model of the same kind that takes no time."""
    full = SYNTHETIC["qwen3-asr-0.6b"]
    decoder = vars(full.decoder) | {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 96,
    }
    config = Qwen3AsrConfig(
        EncoderSpec(64, 2, 4, 96, 64, 128, 32, 800),
        full.encoder_names,
        type(full.decoder)(**decoder),
        full.audio_token_id,
    )
    monkeypatch.setitem(SYNTHETIC, "qwen3-asr-0.6b", config)
    return config


@pytest.fixture
def small_decoder(monkeypatch):
    """A decoder without an encoder that takes no time; it is sampled."""
    full = SYNTHETIC_DECODERS["vevo2-ar"]
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "head_dim": 16, "intermediate_size": 96}
    heads = {"num_attention_heads": 4, "vocab_size": 4000}
    spec = replace(full, **sizes, **heads)
    monkeypatch.setitem(SYNTHETIC_DECODERS, "vevo2-ar", spec)
    return spec


def run(*arguments: str) -> tuple[dict[str, object], str]:
    result = CliRunner().invoke(root, ["bench", "asr", "--rounds", "2", *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.output.splitlines()[-1]), result.output


def test_the_last_line_is_the_json_object_with_its_fields(small):
    portable = ("--instruction-set", "portable")
    figures, output = run("--seconds", "2", "--tokens", "5", "--threads", "1", *portable)
    assert figures["instruction_set"] == "portable"
    assert list(figures) == FIELDS
    assert (figures["seconds"], figures["tokens"], figures["threads"]) == (2.0, 5, 1)
    assert figures["rtf"] == pytest.approx(figures["total_s"] / 2, abs=1e-3)
    assert figures["prefill_rows"] == 9 + 26 + 6
    assert figures["encode_share_of_sgemm"] > 0
    assert figures["prefill_share_of_sgemm"] > 0
    assert re.search(r"^decode_ms_per_token +[\d.]+$", output, re.M)


def test_a_peer_runs_in_the_same_rounds(small):
    class Peer:
        name = "peer"
        lengths: ClassVar[list[int]] = []

        def run(self, samples):
            self.lengths.append(samples.size)
            return 100.0

    bench = AsrBench("qwen3-asr-0.6b", 2.0, 3, RuntimeOptions("q8"))
    figures = bench_asr.run(bench, 2, lambda given: Peer())
    assert Peer.lengths == [16000, 32000, 32000]
    assert figures["versus"]["peer"]["total_s"] == 100.0
    assert figures["versus"]["peer"]["ratio"] == pytest.approx(100 / figures["total_s"], rel=0.5)


def test_json_prints_nothing_else(small):
    _, output = run("--seconds", "1", "--tokens", "1", "--json")
    assert output.count("\n") == 1


def test_a_run_decodes_the_tokens_it_was_asked_for(small, monkeypatch):
    seen = []
    generate = bench_asr.generate

    def spy(*arguments):
        result = generate(*arguments)
        seen.append((len(result.token_ids), result.finish_reason, result.prompt_tokens))
        return result

    monkeypatch.setattr(bench_asr, "generate", spy)
    bench = AsrBench("qwen3-asr-0.6b", 3.0, 7, RuntimeOptions())
    networks, _ = build(bench)
    figures = run_once(bench, networks, noise(3.0))
    assert seen == [(7, "length", 9 + 39 + 6)]
    parts = figures.mel_s + figures.encode_s + figures.prefill_s
    assert parts + figures.decode_ms_per_token * 6 / 1000 <= figures.total_s
    assert median_figures([figures] * 3) == figures


def test_random_weights_are_alive_and_repeat(small):
    names = list(expected_tensors(small))
    first, second = RandomTensors(small), RandomTensors(small)
    for name in names:
        words = first[name].to_f32()
        assert np.array_equal(words, second[name].to_f32())
        assert np.isfinite(words).all()
        if words.ndim > 1 and name != small.decoder.names.token_embedding:
            fan_in = words[0].size
            assert words.std() == pytest.approx(1.6 / np.sqrt(fan_in), rel=0.1)


def test_the_published_sizes():
    sizes = {
        name: sum(int(np.prod(shape)) for shape in expected_tensors(config).values())
        for name, config in SYNTHETIC.items()
    }
    assert sizes["qwen3-asr-0.6b"] == pytest.approx(0.78e9, rel=0.02)
    assert sizes["qwen3-asr-1.7b"] == pytest.approx(2.04e9, rel=0.02)
    decoders = {
        name: sum(int(np.prod(shape)) for shape in decoder_tensors(spec).values())
        for name, spec in SYNTHETIC_DECODERS.items()
    }
    assert decoders["vevo2-ar"] == pytest.approx(508.93e6, abs=1e4)
    assert tuple(SYNTHETIC) == SYNTHETIC_NAMES
    assert tuple(SYNTHETIC_DECODERS) == SYNTHETIC_DECODER_NAMES
