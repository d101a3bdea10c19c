"""ggml beside ours: the same layer, and a clear word when it is not there."""

from __future__ import annotations

import builtins
import json

import numpy as np
import pytest
from click.testing import CliRunner

from stapes.bench import kernels, measure, versus_ggml
from stapes.bench.kernels import KernelBench
from stapes.bench.versus_ggml import GgmlPeer
from stapes.cli.root import root
from stapes.errors import RequestError

COMMAND = ["bench", "kernels", "--versus", "ggml", "--rounds", "1", "--rows", "2"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(measure, "_READ_BYTES", 1 << 23)
    monkeypatch.setattr(measure, "_SETTLE_S", 0.0)
    monkeypatch.setattr(kernels, "ROTATE_BYTES", 1 << 20)


def test_without_the_wheel(monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **keywords):
        if name == "libggml":
            raise ImportError(name)
        return original(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    error = CliRunner().invoke(root, COMMAND).exception
    assert isinstance(error, RequestError)
    assert "libggml-python: pip install 'stapes[bench]'" in str(error)


def test_libraries_that_lack_a_function(monkeypatch):
    pytest.importorskip("libggml")
    broken = {"ggml_no_such_function": (None,)}
    monkeypatch.setattr("stapes.bench.ggml_api._CPU", broken)
    with pytest.raises(RequestError, match="ggml_no_such_function"):
        versus_ggml.open_ggml()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("format", "error"), [("f32", 1e-5), ("q8", 0.02), ("q4", 0.15)])
def test_it_multiplies_the_same_matrix(format, error, threads):
    pytest.importorskip("libggml")
    bench = KernelBench(320, 256)
    layers = GgmlPeer(bench, threads).layers(format)
    assert layers is not None
    assert layers.copies * layers.nbytes >= 1 << 20
    for rows in (1, 4, 33):
        expected = bench.inputs(rows) @ bench.matrix().T
        difference = layers.runner(rows)() - expected
        assert np.sqrt(np.mean(difference**2)) < error * expected.std()


def test_a_format_that_it_does_not_have():
    pytest.importorskip("libggml")
    assert GgmlPeer(KernelBench(64, 64), 1).layers("bf16") is None


def test_the_output_says_what_was_run():
    pytest.importorskip("libggml")
    result = CliRunner().invoke(root, [*COMMAND, "--threads", "2"])
    assert result.exit_code == 0, result.exception
    peer = json.loads(result.stdout.splitlines()[-1])["versus"]["ggml"]
    assert peer["threads"] == 2
    assert set(peer["buffers"]) == {"f32", "q8", "q4"}
    assert peer["buffers"]["q8"].startswith("CPU")
    assert [row["format"] for row in peer["linear"]] == ["f32", "q8", "q4"]
