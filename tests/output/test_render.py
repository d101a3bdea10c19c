"""Transcripts as text and JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stapes import Timings, TokenCounts, Transcript
from stapes.errors import RequestError
from stapes.models.transcript import Segment, Word
from stapes.output import jsonl, text
from stapes.output.formats import FORMATS, encode, format_names

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
            "decode": 0.05, "total": 0.15, "align": 0.0,
        },
        "segments": [],
    }  # fmt: skip


def test_the_json_object_of_a_segment():
    word = Word("one", 0.25, 1 / 3)
    segment = Segment(0.1 + 0.2, 1.25, "one", "English", 2 / 3, (word,), "length")
    (shown,) = jsonl.to_object("a.wav", replace(TRANSCRIPT, segments=(segment,)))["segments"]
    assert list(shown.items()) == [
        ("start_s", 0.3),
        ("end_s", 1.25),
        ("text", "one"),
        ("language", "English"),
        ("confidence", 0.6667),
        ("finish_reason", "length"),
        ("words", [{"text": "one", "start_s": 0.25, "end_s": 0.333}]),
    ]


def test_a_confidence_that_was_not_asked_for_is_null():
    said = replace(TRANSCRIPT, segments=(Segment(0, 1, "one"),))
    (shown,) = json.loads(jsonl.render("a.wav", said))["segments"]
    assert (shown["confidence"], shown["words"]) == (None, [])


def test_the_order_of_nested_fields():
    objects = jsonl.to_object("a.wav", TRANSCRIPT)
    assert list(objects["tokens"]) == ["prompt", "audio", "new"]
    assert list(objects["timings_s"]) == [
        "load", "audio", "mel", "encode", "prefill", "decode", "total", "align",
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
        "srt": ".srt",
        "vtt": ".vtt",
        "tsv": ".tsv",
        "json": ".json",
    }


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("srt", ("srt",)),
        ("json,srt", ("json", "srt")),
        (" TXT , srt,text", ("text", "srt")),
        ("all", tuple(FORMATS)),
        ("json,all", ("json", "text", "srt", "vtt", "tsv")),
    ],
)
def test_lists_of_formats(listed, names):
    assert format_names(listed) == names


@pytest.mark.parametrize("listed", ["", "srt,", "xml", "srt;vtt", "srt,xml"])
def test_a_format_that_is_none(listed):
    with pytest.raises(
        RequestError, match="must be one or several of text, srt, vtt, tsv, json, all, not '"
    ):
        format_names(listed)
