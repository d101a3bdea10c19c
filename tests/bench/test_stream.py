"""`stapes bench stream` on a model of the same kind that takes no time, and on the bundled one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from bench.test_asr import small  # noqa: F401  (a fixture)
from stapes.cli.root import root

EXAMPLES = Path(__file__).parents[2] / "examples"
FIELDS = [
    *("bench", "model", "weights", "activation_bits", "threads", "seconds", "step_s", "looks"),
    *("second_minute_step_s", "last_minute_step_s", "last_to_second"),
    *("second_minute_rss_mb", "last_minute_rss_mb", "first_partial_s"),
    *("draft_offered", "draft_accepted", "reused_share", "rtf", "compared_s"),
    *("compared_text_tokens", "everything_s", "step_there_s", "share"),
    *("unrolled_step_s", "unrolled_share"),
]


def run(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(root, ["bench", "stream", "--threads", "1", *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.output.splitlines()[-1])


def test_a_synthetic_stream(small):  # noqa: F811
    figures = run("--seconds", "130", "--compared", "30", "--tokens", "2")
    assert list(figures) == FIELDS
    assert 60 <= figures["looks"] <= 64 + 6  # steps, and the ends of six utterances
    assert figures["second_minute_step_s"] > 0 < figures["last_minute_step_s"]
    assert figures["second_minute_rss_mb"] == figures["last_minute_rss_mb"]  # of two minutes
    assert figures["compared_text_tokens"] > 20
    assert figures["everything_s"] > 0 < figures["unrolled_step_s"]
    assert 0 < figures["reused_share"] < 1


def test_a_recording_in_its_place():
    figures = run("--file", str(EXAMPLES / "digits-5.wav"), "--seconds", "20")
    assert figures["model"] == "tiny-en"
    assert 0 < figures["draft_accepted"] <= figures["draft_offered"]
    assert figures["compared_s"] == 20
    assert figures["last_to_second"] is None  # less than two minutes


def test_a_model_needs_something_to_hear():
    result = CliRunner().invoke(root, ["bench", "stream", "--model", "tiny-en"])
    assert "--model needs a --file" in str(result.exception)
