"""docs/performance.md: what the generator writes; its tables know every benchmark's fields."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bench.test_asr import small, small_decoder  # noqa: F401  (a fixture)
from bench.test_speak import Peer as SpeakPeer
from bench.test_speak import small as small_speech
from stapes.bench import asr as bench_asr
from stapes.bench import decoder as bench_decoder
from stapes.bench import kernels, measure
from stapes.bench import speak as bench_speak
from stapes.bench.startup import run as run_startup
from stapes.cli.bench import command as bench
from stapes.cli.root import root
from stapes.graph import Tracer
from stapes.options import RuntimeOptions

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    """Imports a script of docs/ or tools/ by name."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    yield importlib.import_module
    for name in ("generate_performance", "performance_tables", "performance_roofline"):
        sys.modules.pop(name, None)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(measure, "_READ_BYTES", 1 << 23)
    monkeypatch.setattr(measure, "_SETTLE_S", 0.0)
    monkeypatch.setattr(kernels, "ROTATE_BYTES", 1 << 20)


def test_the_page_is_what_the_generator_writes(script):
    generate = script("generate_performance")
    figures = generate.read_figures(generate.LATEST)
    page = generate.TARGET.read_text(encoding="utf-8")
    current = generate.render(figures, generate.PICTURE.exists())
    assert page == current, "docs/performance.md is stale: run make docs"


def test_without_figures_there_is_a_page_that_says_so(script, tmp_path):
    generate = script("generate_performance")
    page = generate.render(generate.read_figures(tmp_path / "none.jsonl"), False)
    assert "No run has been recorded yet" in page
    assert "{{" not in page


class Peer:
    """Takes no time."""

    name = "transformers"

    def steps(self):
        pass

    def prefill(self):
        pass

    def sampled(self):
        pass

    def run(self, samples):
        return 60.0


def beside(*arguments: str) -> dict[str, object]:
    return once(*arguments, "--rounds", "1")


def once(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(root, ["bench", *arguments])
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout.splitlines()[-1])


def measured() -> dict[str, dict[str, object]]:
    """Every step at a tiny size."""
    layer = ("--out", "64", "--in", "64", "--instruction-set")
    load = {"ready_s": 0.25, "rss_beyond_weights_and_kv_mb": 170.0}
    options = RuntimeOptions("q8")

    def decoder(positions: int, batch: int) -> dict[str, object]:
        sizes = ("qwen3-asr-0.6b", positions, batch, 6)
        bench = bench_decoder.DecoderBench(*sizes, options, 1, "portable")
        return bench_decoder.run(bench, lambda given: Peer() if batch == 1 else None)

    def drawn(weights: str) -> dict[str, object]:
        bench = bench_decoder.DecoderBench("vevo2-ar", 4, 1, 6, RuntimeOptions(weights), 1)
        return bench_decoder.run(bench, lambda given: Peer())

    run = bench_asr.AsrBench("qwen3-asr-0.6b", 1.0, 2, options, "portable")
    return {
        "kernels": beside("kernels", *layer, "portable", "--versus", "numpy"),
        "kernels-best": beside("kernels", *layer, "auto"),
        "kernels-9": beside("kernels", *layer, "auto", "--activation-bits", "9"),
        "decoder-400": decoder(4, 1),
        "decoder-8000": decoder(8, 1),
        "decoder-batch": decoder(4, 2),
        "draft": beside("draft", "--positions", "4", "--tokens", "4"),
        "long": beside("long", "--pieces", "2", "--seconds", "1", "--tokens", "2"),
        "asr": bench_asr.run(run, 1, lambda given: Peer()),
        "vevo2-q8": drawn("q8"),
        "vevo2-bf16": drawn("bf16"),
        "stream": once("stream", "--seconds", "130", "--compared", "30", "--tokens", "2"),
        "serve": once("serve", "--clients", "2", "--seconds", "0.3"),
        "speak": bench_speak.run(small_speech(threads=1), 1, SpeakPeer),
        "load": load,
        "startup": run_startup(1),
    }


def test_every_field_that_the_tables_read_is_measured(
    small,  # noqa: F811
    small_decoder,  # noqa: F811
    quick,
    script,
    tmp_path,
):
    benchmarks, generate = script("run_benchmarks"), script("generate_performance")
    latest = tmp_path / "latest.jsonl"
    benchmarks.keep(latest, "machine", benchmarks.machine())
    for step, figures in measured().items():
        benchmarks.keep(latest, step, figures)
    figures = generate.read_figures(latest)
    page = generate.render(figures, True)
    assert "No run has been recorded" not in page
    assert "{{" not in page
    tables = script("performance_tables")
    for target in tables.TARGETS:
        assert f"| {target.what} |" in page
    assert "| process start to a loaded, converted file | ≤ 0.3 s | 0.25 | yes | - |" in page
    assert "| resident memory beyond weights and KV cache | ≤ 150 MB | 170 | no | - |" in page
    assert "| decode step of one at 4 positions |" in page
    assert "| numpy " in page
    assert "| flow matching, 2 steps |" in page
    assert "| vocoder |" in page
    assert "| q8 | drawn |" in page
    assert "| real-time factor |" in page
    assert "| rows of a decoding run |" in page
    assert "![A trace of one run](benchmarks/trace.svg)" in page


def test_a_limit_is_the_longer_of_two_times(script):
    stage = script("performance_roofline").Stage("s", 2e9, 50.0, 250.0, 10.0, 500.0)
    assert stage.read_ms == pytest.approx(200)
    assert stage.sgemm_ms == pytest.approx(100)
    assert stage.cells()[-4:] == ["reading", "200", "250", "80 %"]


def test_the_picture_of_a_run(small, script):  # noqa: F811
    tracer = Tracer()
    run = bench_asr.AsrBench("qwen3-asr-0.6b", 2.0, 3, RuntimeOptions("q8"))
    bench_asr.run(run, 1, None, tracer)
    picture = script("generate_trace_picture")
    trace = json.loads(tracer.to_json())
    rows = picture.last_run(trace)
    assert [span.name for span in rows["stages"]] == ["mel", "encode", "prefill", "decode"]
    svg = picture.render(trace)
    assert svg == picture.render(trace)
    for text in ("stages", "plan runs", "<title>cached_attention</title>", "linear: encode "):
        assert text in svg


def test_the_steps_are_commands(script):
    parent = click.Context(root, **root.context_settings)  # click keeps the help option it makes
    for arguments in script("run_benchmarks").STEPS.values():
        name, *rest = arguments.split()
        command = bench.get_command(parent, name)
        command.make_context(name, rest, parent=parent)


def test_avx2_kernels_run_beside_the_avx2_sgemm(script, tmp_path, monkeypatch):
    benchmarks = script("run_benchmarks")
    monkeypatch.setattr(benchmarks, "LATEST", tmp_path / "latest.jsonl")
    monkeypatch.setattr(benchmarks, "TRACE", tmp_path / "trace.json")
    seen = []
    monkeypatch.setattr(benchmarks, "last_line", lambda *given: seen.append(given) or (0, "{}"))
    assert [benchmarks.run("kernels"), benchmarks.run("kernels-best")] == [0, 0]
    assert [environment for _, environment in seen] == [{"OPENBLAS_CORETYPE": "Haswell"}, {}]


def test_steps_are_chosen_by_name_or_by_what_is_missing(script):
    benchmarks = script("run_benchmarks")
    every = list(benchmarks.STEPS)
    assert benchmarks.chosen([], {"asr": {}}) == every
    assert benchmarks.chosen(["asr", "kernels"], {}) == ["kernels", "asr"]
    rest = [name for name in every if name != "asr"]
    assert benchmarks.chosen(["missing"], {"asr": {}, "machine": {}}) == rest
    with pytest.raises(SystemExit, match="no such step: asrr"):
        benchmarks.chosen(["asrr"], {})


def test_a_step_replaces_its_line_only(script, tmp_path):
    benchmarks = script("run_benchmarks")
    path = tmp_path / "folder" / "latest.jsonl"
    for step, value in (("asr", 1), ("machine", 2), ("kernels", 3), ("asr", 4)):
        benchmarks.keep(path, step, {"value": value})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["step"], line["value"]) for line in lines] == [
        ("machine", 2),
        ("kernels", 3),
        ("asr", 4),
    ]


def test_a_step_that_fails_keeps_nothing(script, tmp_path, monkeypatch, capsys):
    benchmarks = script("run_benchmarks")
    monkeypatch.setattr(benchmarks, "LATEST", tmp_path / "latest.jsonl")
    monkeypatch.setattr(benchmarks, "TRACE", tmp_path / "trace.json")
    monkeypatch.setitem(benchmarks.STEPS, "startup", "startup --rounds 0")
    assert benchmarks.run("startup") == 2
    assert not benchmarks.LATEST.exists()
    monkeypatch.setitem(benchmarks.STEPS, "startup", "startup --rounds 1 --json")
    assert benchmarks.run("startup") == 0
    line = benchmarks.recorded(benchmarks.LATEST)["startup"]
    assert (line["bench"], line["environment"]) == ("startup", {})
    assert '"python_ms"' in capsys.readouterr().out
