"""`stapes bench serve` on a model of the same kind that takes no time."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bench.fields import HEAD
from bench.test_asr import small  # noqa: F401  (a fixture)
from stapes.bench import serve
from stapes.cli.root import root

FIELDS = [
    *(*HEAD, "clients", "slots"),
    *("tokens", "tokens_per_request"),
    *("requests", "audio_s_per_s", "single_audio_s_per_s", "throughput_ratio", "tokens_per_s"),
    *("single_tokens_per_s", "median_latency_s", "worst_latency_s", "single_median_latency_s"),
    *("peak_rss_mb", "tokens_per_run"),
]


def test_many_clients_are_timed_beside_one(small):  # noqa: F811
    arguments = ["--clients", "6", "--seconds", "0.6", "--parallel", "4", "--threads", "1"]
    result = CliRunner().invoke(root, ["bench", "serve", *arguments])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output.splitlines()[-1])
    assert set(figures) == set(FIELDS)
    assert (figures["clients"], figures["slots"]) == (6, 4)
    assert figures["requests"] >= 6
    assert figures["tokens_per_s"] > 0 < figures["single_tokens_per_s"]


def test_answers_that_differ_are_an_error():
    load = serve._Load()
    for text in ("1 2", "1 3"):
        load.add(0, 3.0, {"text": text, "usage": {"output_tokens": 2}}, 0.1)
    with pytest.raises(AssertionError, match=r"Clips \[0\]"):
        serve._check([load])
