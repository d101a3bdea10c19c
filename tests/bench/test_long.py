"""`stapes bench long` on a model of the same kind that takes no time."""

from __future__ import annotations

import json

from click.testing import CliRunner

from bench.fields import HEAD
from bench.test_asr import small  # noqa: F401  (a fixture)
from stapes.cli.root import root

FIELDS = [
    *(*HEAD, "pieces", "seconds"),
    *("tokens", "batch", "batched_s", "single_s", "speedup", "rtf", "peak_rss_mb"),
]


def test_pieces_side_by_side_are_timed_beside_the_same_alone(small):  # noqa: F811
    arguments = [
        "--pieces",
        "5",
        "--seconds",
        "2",
        "--tokens",
        "9",
        "--batch",
        "4",
        "--rounds",
        "1",
    ]
    result = CliRunner().invoke(root, ["bench", "long", *arguments, "--threads", "1"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output.splitlines()[-1])
    assert list(figures) == FIELDS
    assert (figures["pieces"], figures["tokens"], figures["batch"]) == (5, 9, 4)
    assert figures["batched_s"] > 0 < figures["single_s"]
