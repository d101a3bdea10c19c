"""`stapes bench load` and `stapes bench startup`: processes that load a model, or nothing."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import stapes
from bench.test_asr import small  # noqa: F401  (a fixture)
from stapes.bench import load as bench_load
from stapes.bench.checkpoint import write_checkpoint
from stapes.bench.load import LoadBench, converted, run
from stapes.bench.processes import python, seconds_of_python
from stapes.cli.root import root
from stapes.errors import RequestError

FIELDS = [
    *("bench", "model", "ready_s", "load_s", "rss_ready_mb", "weights_mb", "kv_mb"),
    *("rss_peak_mb", "rss_beyond_weights_and_kv_mb"),
]


def test_startup_gives_milliseconds():
    result = CliRunner().invoke(root, ["bench", "startup", "--rounds", "1"])
    assert result.exit_code == 0, result.exception
    figures = json.loads(result.stdout.splitlines()[-1])
    assert 0 < figures["python_ms"] < figures["import_numpy_ms"]
    more = figures["import_stapes_ms"] - figures["import_numpy_ms"]
    assert figures["more_than_numpy_ms"] == pytest.approx(more, abs=0.2)


def test_a_bundled_model_is_loaded_in_processes():
    arguments = ["--model", "tiny-en", "--rounds", "1", "--seconds", "1", "--threads", "1"]
    result = CliRunner().invoke(root, ["bench", "load", *arguments])
    assert result.exit_code == 0, result.exception
    figures = json.loads(result.stdout.splitlines()[-1])
    assert list(figures) == FIELDS
    assert 0 < figures["load_s"] < figures["ready_s"]
    assert figures["kv_mb"] > 0, "the noise was not transcribed"
    rest = figures["rss_peak_mb"] - figures["weights_mb"] - figures["kv_mb"]
    assert figures["rss_beyond_weights_and_kv_mb"] == pytest.approx(rest, abs=0.2)
    assert figures["weights_mb"] == pytest.approx(3.4, rel=0.1)


def test_a_synthetic_checkpoint_loads_and_has_a_full_vocabulary(small, tmp_path):  # noqa: F811
    write_checkpoint(tmp_path, "qwen3-asr-0.6b")
    model = stapes.load(tmp_path)
    assert model.config.decoder.hidden_size == small.decoder.hidden_size
    assert model.config.encoder == small.encoder
    assert model.tokenizer.token_id("<|audio_pad|>") == small.audio_token_id
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    ids = sorted(tokenizer["model"]["vocab"].values())
    assert ids == list(range(151643))


def test_a_converted_synthetic_model_is_loaded(small, monkeypatch):  # noqa: F811
    notes: list[str] = []
    with converted("qwen3-asr-0.6b", "q4", notes.append) as file:
        figures = run(LoadBench(file, {"threads": 1}, 1.0, 1))
    assert figures["model"] == "qwen3-asr-0.6b-q4.stapes"
    assert len(notes) == 2


@pytest.mark.parametrize("given", [[], ["--model", "tiny-en", "--synthetic", "qwen3-asr-0.6b"]])
def test_one_model_is_named(given):
    error = CliRunner().invoke(root, ["bench", "load", *given]).exception
    assert isinstance(error, RequestError)


def test_a_process_that_fails_says_why():
    with pytest.raises(RequestError, match=r"ended with 1: ValueError: of this"):
        python("-c", "raise ValueError('of this')")
    assert seconds_of_python("-c", "import time; time.sleep(0.05)") > 0.05


def test_the_format_goes_to_the_process(monkeypatch):
    seen = []
    reply = dict.fromkeys(FIELDS[2:-1], 1.0)
    monkeypatch.setattr(
        bench_load, "python", lambda *given: seen.append(given) or json.dumps(reply)
    )
    arguments = ["--model", "m", "--weights", "q4", "--rounds", "1"]
    result = CliRunner().invoke(root, ["bench", "load", *arguments])
    assert result.exit_code == 0, result.exception
    assert json.loads(seen[0][4]) == {"threads": None, "weights": "q4"}
