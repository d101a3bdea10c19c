"""The README says what is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

import stapes
from stapes.cli import exits
from stapes.cli.transcribe import command
from stapes.models.transcript import Timings, TokenCounts, Transcript
from stapes.output.jsonl import to_object

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_option_is_in_the_table():
    options = {
        name
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in parameter.opts
    }
    assert set(re.findall(r"^\| `(--[a-z-]+)", README, re.MULTILINE)) == options


def test_every_exit_code_is_in_the_table():
    codes = {value for name, value in vars(exits).items() if name.isupper() and name[0] != "_"}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)} == codes


def test_the_json_example_has_the_fields():
    counts, timings = TokenCounts(0, 0, 0), Timings(0, 0, 0, 0, 0, 0, 0)
    real = to_object("a", Transcript("", None, 0.0, "", "stop", False, (), (), counts, timings))
    shown = json.loads(re.findall(r"```json\n(.*?)```", README, re.DOTALL)[0])
    assert list(shown) == list(real)
    assert [list(shown[key]) for key in ("tokens", "timings_s")] == [
        list(real[key]) for key in ("tokens", "timings_s")
    ]


def test_every_public_name_is_mentioned():
    names = set(stapes.__all__) - {"__version__", "load"}
    assert {name for name in names if f"`{name}`" not in README} == set()
    assert "stapes.load(" in README


def test_every_make_target_has_a_description():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE):
        assert re.search(rf"^{target}:.*## \w", makefile, re.MULTILINE), target
