"""`stapes bench kernels` and `stapes bench decoder`: their figures hang together."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from bench.test_asr import small, small_decoder  # noqa: F401  (fixtures)
from stapes.bench import kernels, measure
from stapes.bench.kernels import KernelBench, OurLayers
from stapes.bench.synthetic import activation_bits
from stapes.cli.root import root
from stapes.errors import RequestError
from stapes.graph import NO_TRACE, Engine
from stapes.options import RuntimeOptions


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(measure, "_READ_BYTES", 1 << 23)
    monkeypatch.setattr(measure, "_SETTLE_S", 0.0)
    monkeypatch.setattr(kernels, "ROTATE_BYTES", 1 << 20)


def invoke(*arguments: str):
    result = CliRunner().invoke(root, ["bench", *arguments, "--rounds", "2"])
    assert result.exit_code == 0, result.output
    return result


def run(*arguments: str) -> dict[str, object]:
    return json.loads(invoke(*arguments).stdout.splitlines()[-1])


def test_kernels_gives_a_row_for_every_format_and_number_of_rows():
    figures = run("kernels", "--rows", "1", "--rows", "9", "--out", "960", "--in", "640")
    rows = figures["linear"]
    assert [(row["format"], row["rows"]) for row in rows] == [
        (format, count) for format in ("f32", "bf16", "q8", "q4") for count in (1, 9)
    ]
    for row in rows:
        assert (row["out"], row["in"]) == (960, 640)
        flops = 2 * row["rows"] * 960 * 640
        assert row["gflops"] == pytest.approx(flops / row["ms"] / 1e6, rel=0.05)
    assert figures["streaming_read_gb_s"] > 0
    assert figures["sgemm_gflops"] > 0
    assert "versus" not in figures


def test_kernels_beside_activations_of_9_bits():
    sizes = ("kernels", "--format", "q8", "--rows", "1", "--out", "640", "--in", "640")
    assert run(*sizes)["activation_bits"] == 13
    assert run(*sizes, "--activation-bits", "9")["activation_bits"] == 9

    def layer(bits):
        bench = KernelBench(64, 64, activation_bits=bits)
        return OurLayers(Engine(1), "q8", bench, NO_TRACE).runner(3)()

    assert not np.array_equal(layer(13)["y"], layer(9)["y"])


@pytest.mark.parametrize(("name", "bits"), [("qwen3-asr-0.6b", 9), ("vevo2-ar", 13)])
def test_random_models_take_the_activations_of_their_kind(name, bits):
    assert activation_bits(name, RuntimeOptions()) == bits
    assert activation_bits(name, RuntimeOptions(activation_bits=22 - bits)) == 22 - bits


def test_kernels_beside_numpy():
    figures = run(
        *("kernels", "--versus", "numpy", "--format", "q8", "--format", "q4"),
        *("--rows", "3", "--out", "640", "--in", "640"),
    )
    peer = figures["versus"]["numpy"]
    assert peer["weights"] == "f32"
    assert [row["format"] for row in peer["linear"]] == ["q8", "q4"]
    for theirs, ours in zip(peer["linear"], figures["linear"], strict=True):
        assert theirs["ratio"] == pytest.approx(theirs["ms"] / ours["ms"], rel=0.02)
        assert list(theirs) == [*ours, "ratio"]


def test_the_layers_that_are_timed_are_the_same():
    bench = kernels.KernelBench(48, 64, threads=1)
    engine = kernels.Engine(1)
    ours = kernels.OurLayers(engine, "f32", bench, kernels.NO_TRACE)
    expected = bench.inputs(5) @ bench.matrix().T
    assert ours.runner(5)()["y"] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert ours.copies * ours.nbytes >= 1 << 20


@pytest.mark.parametrize("name", ["kernels", "decoder", "asr"])
def test_an_unknown_instruction_set_is_refused(name):
    result = CliRunner().invoke(root, ["bench", name, "--instruction-set", "mmx"])
    assert isinstance(result.exception, RequestError)
    assert "mmx" in str(result.exception)


def test_decoder_counts_what_it_ran(small):  # noqa: F811
    result = invoke(
        *("decoder", "--positions", "20", "--batch", "3", "--prefill-rows", "30"),
        *("--threads", "1", "--instruction-set", "portable"),
    )
    figures = json.loads(result.stdout.splitlines()[-1])
    assert (figures["positions"], figures["batch"], figures["prefill_rows"]) == (20, 3, 30)
    assert figures["tokens_per_s"] == pytest.approx(3000 / figures["step_ms"], rel=0.05)
    assert figures["instruction_set"] == "portable"
    assert 0 <= figures["outside_kernels_share"] < 1
    assert 0 < figures["attention_ms"] < figures["step_ms"]
    for share in ("share_of_read", "attention_share_of_read", "share_of_sgemm", "speedup_over_one"):
        assert figures[share] > 0, share
    assert "Sequence 3 of 3: 0 of 20 positions" in result.stderr


def test_one_sequence_has_no_speedup(small):  # noqa: F811
    assert "speedup_over_one" not in run("decoder", "--positions", "5", "--prefill-rows", "5")


def test_a_decoder_that_is_sampled(small_decoder):  # noqa: F811
    arguments = ("--positions", "20", "--batch", "2", "--prefill-rows", "9", "--weights", "bf16")
    figures = run("decoder", "--synthetic", "vevo2-ar", *arguments)
    assert figures["sampled_tokens_per_s"] > 0
    assert figures["speedup_over_one"] > 0
    assert (figures["weights"], figures["positions"], figures["batch"]) == ("bf16", 20, 2)


def test_a_decoder_that_is_greedy_has_no_figure_for_draws(small):  # noqa: F811
    assert "sampled_tokens_per_s" not in run("decoder", "--positions", "5", "--prefill-rows", "5")


@pytest.mark.parametrize("name", ["asr", "draft", "long"])
def test_a_decoder_without_an_encoder_is_no_choice_elsewhere(name):
    result = CliRunner().invoke(root, ["bench", name, "--synthetic", "vevo2-ar"])
    assert "'vevo2-ar' is not one of" in str(result.exception) + result.output


@pytest.mark.parametrize("arguments", [("kernels", "--rows", "1"), ("decoder", "--positions", "3")])
def test_a_trace_of_the_measured_runs(small, tmp_path, arguments):  # noqa: F811
    path = tmp_path / "trace.json"
    run(*arguments, "--trace", str(path))
    kinds = {event["name"] for event in json.loads(path.read_text())["traceEvents"]}
    assert "linear" in kinds
