"""`stapes bench drift`: answers of the same seeds, format by format."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from bench.test_asr import small_decoder  # noqa: F401  (a fixture)
from stapes.bench.drift import compared, moved_probability
from stapes.cli.root import root
from vevo2_models import write_root

ROW = [
    *("weights", "kv", "same_answers", "equal_ids_least", "equal_ids_median"),
    "moved_probability",
]


def run(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(root, ["bench", "drift", *arguments])
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout.splitlines()[-1])


def test_a_row_for_each_format(small_decoder):  # noqa: F811
    figures = run("--seeds", "3", "--tokens", "12", "--threads", "1")
    assert (figures["model"], figures["random_weights"]) == ("vevo2-ar", True)
    rows = figures["formats"]
    pairs = [(row["weights"], row["kv"]) for row in rows]
    assert pairs == [("f32", "f32"), *((w, "f16") for w in ("f32", "bf16", "q8", "q4"))]
    for row in rows:
        assert list(row) == ROW
        assert 0 <= row["equal_ids_least"] <= row["equal_ids_median"] <= 12
    assert rows[0]["same_answers"] == 3
    assert rows[1] == {**rows[2], "weights": "f32"}  # the random weights are bf16 numbers
    assert rows[4]["same_answers"] < 3
    moved = [row["moved_probability"] for row in rows]
    assert moved[0] == 0 < moved[1] < moved[3] < moved[4] < 1


def test_a_folder(tmp_path):
    folder = write_root(tmp_path / "Vevo2")
    arguments = ("--model", str(folder), "--seeds", "2", "--tokens", "5", "--weights", "f32")
    figures = run(*arguments, "--kv", "f32")
    assert (figures["model"], figures["random_weights"]) == ("Vevo2", False)
    assert [row["same_answers"] for row in figures["formats"]] == [2]


@pytest.mark.parametrize(
    ("answers", "same", "least", "median"),
    [
        ([(1, 2, 3), (4, 5)], 2, 2, 2.5),
        ([(1, 9, 3), (4, 5)], 1, 1, 1.5),
        ([(1, 2), (4, 5, 6)], 0, 2, 2),
        ([(7, 2, 3), ()], 0, 0, 0),
    ],
)
def test_what_is_counted(answers, same, least, median):
    exact = [(1, 2, 3), (4, 5)]
    assert list(compared(answers, exact).values()) == [same, least, median]


def test_how_much_probability_moves():
    exact = np.float32([[0.5, 0.5, 0], [0.25, 0.25, 0.5]])
    found = np.float32([[0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])
    assert moved_probability(found, exact) == 0.125
