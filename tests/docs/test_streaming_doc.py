"""docs/streaming.md: its code runs, and its numbers are those of the policy."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from stapes.streaming import StreamPolicy

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "streaming.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copy(ROOT / "examples" / "digits-5.wav", tmp_path / "talk.wav")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "streaming"}
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    for code in blocks:
        exec(compile(code, str(PAGE), "exec"), namespace)
    finals = [event.text for event in namespace["said"] if event.type == "final"]
    assert finals == ["nine zero zero eight seven"]
    assert "".join(namespace["committed"]) == finals[0]


def test_the_numbers_are_the_defaults():
    told = dict(re.findall(r"`(\w+)` \((\d+(?:\.\d+)?)(?: s)?\)", TEXT))
    assert {"silence_s", "max_utterance_s", "boundary_s", "step_s", "unfixed_steps"} <= set(told)
    assert {name: float(value) for name, value in told.items()} == {
        name: float(getattr(StreamPolicy(), name)) for name in told
    }
