"""Subtitle files as other programs read them: two parsers from PyPI, and FFmpeg, as players do."""

from __future__ import annotations

import csv
import html
import io
import re
from datetime import timedelta

import av
import pytest
import srt
import webvtt
from hypothesis import given, settings

from output.transcripts import ODD, letters, timed, transcript, transcripts
from stapes.models.transcript import Segment
from stapes.output.cues import cues_of
from stapes.output.formats import FORMATS, encode

# Of lines that a parser could take for something else.
TRAPS = (
    "00:00:01,000 --> 00:00:02,000", "00:00:01.000 --> 00:00:02.000", "--->", "7", "1\n\n2\n",
    "<i>x</i> {\\an8} <00:01.000> </v>", "&amp; & &lt;", "NOTE x", "WEBVTT", "STYLE", "x\r\n\r\ny",
    "مرحبا بالعالم", ODD,
)  # fmt: skip


def as_ms(time: timedelta) -> int:
    return round(time / timedelta(milliseconds=1))


def read_srt(rendered: str) -> list[tuple[int, int, str]]:
    blocks = list(srt.parse(rendered))  # an error where anything is left over
    assert [block.index for block in blocks] == list(range(1, len(blocks) + 1))
    return [(as_ms(block.start), as_ms(block.end), block.content) for block in blocks]


def read_vtt(rendered: str) -> list[tuple[int, int, str]]:
    captions = webvtt.WebVTT.from_string(rendered, strict=True)
    return [
        (read_clock(caption.start), read_clock(caption.end), html.unescape(caption.raw_text))
        for caption in captions
    ]


def read_clock(time: str) -> int:
    hours, minutes, seconds = time.split(":")
    return (int(hours) * 60 + int(minutes)) * 60_000 + round(float(seconds) * 1000)


def expected(said) -> list[tuple[int, int, str]]:
    return [(cue.start_ms, cue.end_ms, "\n".join(cue.lines)) for cue in cues_of(said)]


def without_arrows(cues: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """SubRip cannot express them: they are shortened."""
    return [(start, end, re.sub("--+>", "->", text)) for start, end, text in cues]


@settings(max_examples=50)
@given(transcripts())
def test_srt_is_read_back(said):
    assert read_srt(FORMATS["srt"].render("a.wav", said)) == without_arrows(expected(said))


@settings(max_examples=50)
@given(transcripts())
def test_vtt_is_read_back(said):
    rendered = FORMATS["vtt"].render("a.wav", said)
    assert read_vtt(rendered) == expected(said)


@pytest.mark.parametrize("text", TRAPS)
def test_no_text_breaks_a_file(text):
    said = transcript(Segment(0, 5, text), Segment(6, 9, text))
    cues = expected(said)
    assert read_vtt(FORMATS["vtt"].render("a", said)) == cues
    assert read_srt(FORMATS["srt"].render("a", said)) == without_arrows(cues)


@pytest.mark.parametrize("name", ["srt", "vtt"])
def test_a_player_reads_every_cue(name):
    said = transcript(*(timed("We came late, as always. " * 9, t) for t in range(0, 60, 20)))
    data = encode(FORMATS[name].render("a", said), "utf-8")
    with av.open(io.BytesIO(data)) as file:
        packets = [packet for packet in file.demux() if packet.size]
        read = [
            (round(p.pts * p.time_base * 1000), round(p.duration * p.time_base * 1000), bytes(p))
            for p in packets
        ]
    assert read == [(a, b - a, text.encode()) for a, b, text in expected(said)]


def test_what_the_files_look_like():
    said = transcript(Segment(1.5, 3, "a < b"), Segment(3600, 3601.25, "so"), duration_s=3602.0)
    assert FORMATS["srt"].render("a", said) == (
        "1\n00:00:01,500 --> 00:00:03,000\na < b\n\n2\n01:00:00,000 --> 01:00:01,250\nso\n\n"
    )
    assert FORMATS["vtt"].render("a", said) == (
        "WEBVTT\n\n00:00:01.500 --> 00:00:03.000\na &lt; b\n\n01:00:00.000 --> 01:00:01.250\nso\n"
    )
    assert FORMATS["tsv"].render("a", said) == (
        "start\tend\ttext\n1500\t3000\ta < b\n3600000\t3601250\tso\n"
    )


def test_silence_gives_files_without_cues():
    said = transcript(text="")
    rendered = {name: FORMATS[name].render("a", said) for name in ("srt", "vtt", "tsv")}
    assert rendered == {"srt": "", "vtt": "WEBVTT\n", "tsv": "start\tend\ttext\n"}
    assert read_srt(rendered["srt"]) == read_vtt(rendered["vtt"]) == []


@settings(max_examples=50)
@given(transcripts())
def test_a_table_has_a_row_for_each_segment(said):
    rendered = FORMATS["tsv"].render("a.wav", said)
    _, *rows = csv.reader(io.StringIO(rendered, newline=""), "excel-tab", quoting=csv.QUOTE_NONE)
    assert [(int(a), int(b)) for a, b, _ in rows] == [
        (round(s.start_s * 1000), round(s.end_s * 1000)) for s in said.segments
    ]
    assert [letters(text) for _, _, text in rows] == [letters(s.text) for s in said.segments]
