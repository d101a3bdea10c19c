"""`stapes bench kernels` and `stapes bench decoder`: their figures hang together."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bench.test_asr import small  # noqa: F401  (a fixture)
from stapes.bench import kernels, measure
from stapes.cli.root import root
from stapes.errors import RequestError


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(measure, "_READ_BYTES", 1 << 23)
    monkeypatch.setattr(kernels, "_ROTATE_BYTES", 1 << 20)


def run(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(root, ["bench", *arguments, "--rounds", "2"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output.splitlines()[-1])


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


def test_an_unknown_instruction_set_is_refused():
    result = CliRunner().invoke(root, ["bench", "kernels", "--instruction-set", "mmx"])
    assert isinstance(result.exception, RequestError)
    assert "mmx" in str(result.exception)


def test_decoder_counts_what_it_ran(small):  # noqa: F811
    figures = run(
        *("decoder", "--positions", "20", "--batch", "3", "--prefill-rows", "30"),
        *("--threads", "1"),
    )
    assert (figures["positions"], figures["batch"], figures["prefill_rows"]) == (20, 3, 30)
    assert figures["tokens_per_s"] == pytest.approx(3000 / figures["step_ms"], rel=0.05)
    assert 0 <= figures["outside_kernels_share"] < 1
    assert figures["share_of_read"] > 0
    assert figures["share_of_sgemm"] > 0
