"""Transcripts as text and JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stapes import Timings, TokenCounts, Transcript
from stapes.output import jsonl, text
from stapes.output.formats import FORMATS, encode

TRANSCRIPT = Transcript(
    text="one",
    language=None,
    duration_s=1.25,
    model="tiny-en",
    finish_reason="length",
    truncated=True,
    warnings=("cut short.",),
    token_ids=(7,),
    tokens=TokenCounts(prompt=30, audio=16, new=1),
    timings_s=Timings(0.5, 0.01, 0.02, 0.03, 0.04, 0.05, 0.15),
)


def test_the_json_object():
    assert jsonl.to_object("a.wav", TRANSCRIPT) == {
        "file": "a.wav",
        "text": "one",
        "language": None,
        "duration_s": 1.25,
        "model": "tiny-en",
        "finish_reason": "length",
        "truncated": True,
        "warnings": ["cut short."],
        "token_ids": [7],
        "tokens": {"prompt": 30, "audio": 16, "new": 1},
        "timings_s": {
            "load": 0.5, "audio": 0.01, "mel": 0.02, "encode": 0.03, "prefill": 0.04,
            "decode": 0.05, "total": 0.15,
        },
    }  # fmt: skip


def test_the_order_of_nested_fields():
    objects = jsonl.to_object("a.wav", TRANSCRIPT)
    assert list(objects["tokens"]) == ["prompt", "audio", "new"]
    assert list(objects["timings_s"]) == [
        "load", "audio", "mel", "encode", "prefill", "decode", "total",
    ]  # fmt: skip


@given(st.text(), st.text())
def test_json_is_one_line_and_loses_nothing(file, words):
    line = jsonl.render(file, replace(TRANSCRIPT, text=words))
    assert line.endswith("\n")
    assert len(line.splitlines()) == 1
    data = json.loads(encode(line, "utf-8").decode("utf-8"))
    assert (data["file"], data["text"]) == (file, words)


def test_a_stray_byte_of_a_file_name_survives():
    line = encode(jsonl.render("\udcff.wav", TRANSCRIPT), "utf-8").decode("utf-8")
    assert json.loads(line)["file"] == "\udcff.wav"


def test_not_a_number_is_not_json():
    with pytest.raises(ValueError, match="JSON"):
        jsonl.render("a.wav", replace(TRANSCRIPT, duration_s=math.nan))


@given(st.text())
def test_text_is_one_line(words):
    line = text.render("a.wav", replace(TRANSCRIPT, text=words))
    assert line.endswith("\n")
    assert len(line.splitlines()) == 1


def test_text_keeps_the_words():
    assert text.render("a.wav", replace(TRANSCRIPT, text=" one  two\r\nthree ")) == (
        "one  two three\n"
    )


def test_suffixes():
    assert {name: output.suffix for name, output in FORMATS.items()} == {
        "text": ".txt",
        "json": ".json",
    }
