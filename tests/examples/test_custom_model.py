"""examples/custom_model.py: runs as a script, says what is so, and its encoder counts."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from stapes.decoder import GenerateOptions, generate
from stapes.errors import CheckpointError
from stapes.graph import Engine, ReferenceExecutor
from stapes.tensors import open_safetensors
from stapes.weights import CheckpointReader, MatrixPacker

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_model.py"


@pytest.fixture(scope="module")
def example() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE), run_name="example"))


@pytest.fixture(scope="module")
def path(example: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("custom") / "model.safetensors"
    example.write_weights(path)
    return path


def sound(hz: float, seconds: float = 2.0) -> np.ndarray:
    time_s = np.arange(int(16_000 * seconds), dtype=np.float32) / 16_000
    return np.sin(2 * np.pi * hz * time_s * (1 + time_s)).astype(np.float32)


def test_it_runs_and_reports_what_it_did():
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    numbers = re.search(
        r"encoder: 48000 samples became 37 rows of 64\n"
        r"random weights wrote ids that mean nothing: \((?P<ids>[\d, ]+)\)\n"
        r"another task: (?P<reused>\d+) of (?P<prompt>\d+) tokens reused\n"
        r"draft: (?P<accepted>\d+) of (?P<offered>\d+) ids accepted, same ids: True\n"
        r"batch: 2 answers side by side, same ids for the first: True\n$",
        done.stdout,
    )
    assert numbers is not None, done.stdout
    assert len(set(numbers["ids"].split(", "))) > 8  # not one id over and over
    assert (numbers["reused"], numbers["prompt"]) == ("41", "42")
    assert (numbers["accepted"], numbers["offered"]) == ("8", "9")


def test_the_wiring_takes_60_lines():
    """Code down to `build_prompt`, without imports, docstrings and blank lines."""
    tree = ast.parse(EXAMPLE.read_text(encoding="utf-8"))
    names = [getattr(node, "name", "") for node in tree.body]
    lines: set[int] = set()
    for node in tree.body[: names.index("build_prompt") + 1]:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            lines |= {n.lineno for n in ast.walk(node) if isinstance(n, ast.stmt | ast.expr)}
            lines -= {n.lineno for n in ast.walk(node) if is_text(n)}
    assert 40 < len(lines) <= 60


def is_text(node: ast.AST) -> bool:
    """A docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_what_is_heard_decides_what_is_written(example: Any, path: Path):
    encoder, decoder = example.load(path)
    prompts = [
        example.build_prompt(encoder.encode(sound(hz)), task)
        for hz in (150, 220)
        for task in (example.WRITE, example.TRANSLATE)
    ]
    answers = {generate(decoder.new_session(), p, GenerateOptions(8)).token_ids for p in prompts}
    assert len(answers) == 4


def test_a_row_stands_for_eight_frames(example: Any, path: Path):
    encoder, _ = example.load(path)
    for samples, rows in ((8_000, 6), (16_000, 12), (20_479, 15), (20_480, 16)):
        assert encoder.encode(sound(300)[:samples]).shape == (rows, 64)


def test_the_core_encodes_what_the_reference_does(example: Any, path: Path):
    engine = Engine(1)
    with open_safetensors(path) as store:
        reader = CheckpointReader(store, MatrixPacker(engine, "q8"))
        reference = example.Encoder(reader, ReferenceExecutor)
    encoder, _ = example.load(path)
    found, expected = encoder.encode(sound(400)), reference.encode(sound(400))
    assert np.abs(expected).max() > 0.1
    assert np.allclose(found, expected, atol=1e-4)


def test_another_checkpoint_is_refused(example: Any, path: Path, tmp_path: Path):
    tensors = load_file(path)
    tensors["encoder.bias"] = tensors.pop("encoder.conv.bias")
    save_file(tensors, tmp_path / "other.safetensors")
    message = r"1 missing: encoder\.conv\.bias; 1 unexpected: encoder\.bias\."
    with pytest.raises(CheckpointError, match=message):
        example.load(tmp_path / "other.safetensors")
