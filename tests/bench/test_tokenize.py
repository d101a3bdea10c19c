"""`stapes bench tokenize` on networks of the same kind that take no time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from stapes.bench import tokenize
from stapes.cli.root import root

FIELDS = [
    *("bench", "seconds", "weights", "threads", "instruction_set"),
    *("whisper_s", "content_style_s", "prosody_s", "peak_rss_mb"),
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    whisper = tokenize.WhisperSpec(80, 64, 2, 4, 256, 150)
    content_style = tokenize.CocoSpec(24, 64, 48, 2, 32, 64, 2, 200, 8)
    prosody = replace(content_style, whisper_dim=0, downsample_layers=3, codebook_size=40)
    sizes = {"whisper": whisper, "content_style": content_style, "prosody": prosody}
    inner = tokenize.TokenizeBench
    monkeypatch.setattr(
        tokenize, "TokenizeBench", lambda *given, **more: inner(*given, **more, **sizes)
    )


def figures(*arguments: str) -> dict:
    given = ["bench", "tokenize", "--rounds", "1", "--threads", "1", "--seconds", "2", *arguments]
    result = CliRunner().invoke(root, given)
    assert result.exit_code == 0, result.output
    return json.loads(result.output.splitlines()[-1])


@pytest.mark.usefixtures("small")
def test_every_network_is_timed():
    found = figures("--weights", "q8")
    assert list(found) == FIELDS
    assert (found["seconds"], found["weights"]) == (2.0, "q8")
    assert min(found["whisper_s"], found["content_style_s"], found["prosody_s"]) >= 0


@pytest.mark.parity
@pytest.mark.usefixtures("small")
def test_torch_computes_the_same():
    pytest.importorskip("transformers")
    found = figures("--versus", "torch")["versus"]["torch"]
    assert found["whisper_difference"] < 1e-4
    assert found["content_style_equal"] == found["prosody_equal"] == 1.0
