"""`stapes bench draft` on a model of the same kind that takes no time."""

from __future__ import annotations

import json

from click.testing import CliRunner

from bench.fields import HEAD
from bench.test_asr import small  # noqa: F401  (a fixture)
from stapes.cli.root import root

FIELDS = [
    *(*HEAD, "positions", "tokens"),
    *("different_ids", "plain_s", "drafted_s", "share"),
]


def test_a_guessed_answer_is_timed_beside_a_decoded_one(small):  # noqa: F811
    arguments = ["--positions", "20", "--tokens", "40", "--rounds", "2", "--threads", "1"]
    result = CliRunner().invoke(root, ["bench", "draft", *arguments])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output.splitlines()[-1])
    assert list(figures) == FIELDS
    assert (figures["positions"], figures["tokens"]) == (20, 40)
    assert figures["different_ids"] > 1
    assert min(figures["drafted_s"], figures["plain_s"]) > 0  # which is less here is chance
    assert figures["share"] > 0
