"""docs/models/vevo2.md: its code runs on a random folder, its tables are those of the code."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stapes.models.vevo2 import pipeline
from stapes.models.vevo2.request import VoiceOptions
from stapes.models.vevo2.tasks import TASKS
from vevo2_voice import write_voice

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/models/vevo2.md"
TEXT = PAGE.read_text("utf-8")


def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("librosa")
    write_voice(tmp_path / "Vevo2")
    shutil.copy(ROOT / "examples/digits-3.wav", tmp_path / "talk.wav")
    shutil.copy(ROOT / "examples/digits-5.wav", tmp_path / "anna.wav")
    monkeypatch.chdir(tmp_path)
    # A random model goes on to the end, and writes what are no codes.
    short = partial(VoiceOptions, max_new_tokens=25, codes_only=True)
    monkeypatch.setattr(pipeline, "VoiceOptions", short)
    namespace: dict[str, Any] = {}
    (code,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
    exec(code, namespace)
    assert namespace["audio"].seed == namespace["other"].seed == 1
    assert namespace["piece"].samples.any()


def test_the_table_has_every_task():
    table = TEXT.split("## Tasks")[1].split("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| `")]
    assert [name for row in rows for name in re.findall(r"`([a-z_]+)`", row)] == list(TASKS)


def test_every_option_that_is_named_exists():
    from stapes.cli.convert_voice import command as convert
    from stapes.cli.serve import command as serve
    from stapes.cli.speak import command as speak

    known = {name for c in (speak, convert, serve) for p in c.params for name in p.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) - {
        "--synthetic",
        "--model",
        "--full",
    }
    assert named <= known | {"--task"}


def test_the_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
