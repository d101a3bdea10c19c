"""Transcripts in parts as they come, and subtitles made of them without the recording."""

from __future__ import annotations

import json
import shutil
import subprocess
from io import StringIO
from pathlib import Path

import pytest
import srt
import webvtt

from server.serving import Running, client_of
from server.sounds_for import long_recording

ROUTE = "/v1/audio/transcriptions"


@pytest.fixture(scope="module")
def told(page_server: Running):
    """verbose_json, streamed and whole, and subtitles of one recording."""
    sound = long_recording(3).getvalue()

    def ask(**fields: str):
        with page_server.client() as client:
            files = {"file": ("long.wav", sound)}
            return client.post(ROUTE, data={"model": "tiny-en", **fields}, files=files)

    lines = ask(response_format="verbose_json", stream="true").text.split("\n\n")
    return {
        "events": [json.loads(line.removeprefix("data: ")) for line in lines if line],
        "verbose": ask(response_format="verbose_json").json(),
        "srt": ask(response_format="srt").text,
        "vtt": ask(response_format="vtt").text,
    }


def subtitles(server: Running, **body: object):
    with server.client() as client:
        return client.post("/v1/audio/subtitles", json=body)


def test_segments_come_one_by_one(told):
    *parts, done = told["events"]
    segments = [dict(event) for event in parts if event["type"] == "transcript.text.segment"]
    deltas = [event["delta"] for event in parts if event["type"] == "transcript.text.delta"]
    assert len(segments) > 1
    assert len(segments) == len(deltas)
    for segment in segments:
        del segment["type"]
    assert segments == told["verbose"]["segments"]
    assert "".join(deltas) == told["verbose"]["text"]
    assert done == {"type": "transcript.text.done"} | told["verbose"]


def test_openai_reads_the_events(page_server: Running, told):
    with client_of(page_server) as client:
        events = client.audio.transcriptions.create(
            file=("long.wav", long_recording(3)),
            model="tiny-en",
            response_format="verbose_json",
            stream=True,
        )
        found = [(event.type, getattr(event, "text", None)) for event in events]
    expected = [("transcript.text.segment", s["text"]) for s in told["verbose"]["segments"]]
    assert [pair for pair in found if pair[0] == "transcript.text.segment"] == expected
    assert found[-1] == ("transcript.text.done", told["verbose"]["text"])


@pytest.mark.parametrize("kind", ["srt", "vtt"])
def test_subtitles_are_those_of_the_recording(page_server: Running, told, kind: str):
    verbose = told["verbose"]
    answer = subtitles(
        page_server,
        response_format=kind,
        duration=verbose["duration"],
        segments=verbose["segments"],
    )
    assert answer.status_code == 200
    assert answer.text == told[kind]
    assert len(answer.text) > 100


def test_words_give_cues_their_times(page_server: Running):
    segment = {"start": 0.0, "end": 20.0, "text": "One two. Three four."}
    words = [
        {"word": "One", "start": 0.5, "end": 1.0},
        {"word": "two.", "start": 1.0, "end": 1.5},
        {"word": "Three", "start": 12.0, "end": 13.0},
        {"word": "four.", "start": 13.0, "end": 14.0},
    ]
    answer = subtitles(page_server, duration=20.0, segments=[segment], words=words)
    cues = list(srt.parse(answer.text))
    assert [(c.content, c.start.total_seconds()) for c in cues] == [
        ("One two.", 0.5),
        ("Three four.", 12.0),
    ]


def test_words_belong_to_the_segment_in_which_they_lie(page_server: Running):
    segments = [{"start": 0, "end": 5, "text": "One."}, {"start": 6, "end": 9, "text": "Two."}]
    words = [{"word": "Two.", "start": 7, "end": 8}, {"word": "One.", "start": 1, "end": 2}]
    answer = subtitles(
        page_server, response_format="vtt", duration=9, segments=segments, words=words
    )
    cues = webvtt.from_buffer(StringIO(answer.text))
    assert [(c.text, c.start) for c in cues] == [("One.", "00:00:01.000"), ("Two.", "00:00:07.000")]


def test_nothing_was_said(page_server: Running):
    assert subtitles(page_server, duration=3, segments=[]).text == ""


@pytest.mark.parametrize(
    ("body", "param", "sentence"),
    [
        ({"segments": []}, "duration", "missing"),
        ({"duration": -1, "segments": []}, "duration", "-1"),
        ({"duration": 1e30, "segments": []}, "duration", "1e+30"),
        ({"duration": 1, "segments": [], "sound": 1}, "sound", "not supported"),
        ({"duration": 1, "segments": [], "response_format": "ass"}, "response_format", "ass"),
        (
            {"duration": 9, "segments": [{"start": 2, "end": 1, "text": "a"}]},
            "segments",
            "to 1 s",
        ),
        (
            {
                "duration": 9,
                "segments": [
                    {"start": 2, "end": 4, "text": "a"},
                    {"start": 3, "end": 5, "text": "b"},
                ],
            },
            "segments",
            "ends at 4 s",
        ),
        ({"duration": 9, "segments": [{"start": 2, "text": "a"}]}, "segments.0.end", "missing"),
    ],
)
def test_wrong_fields_are_named(page_server: Running, body: dict, param: str, sentence: str):
    answer = subtitles(page_server, **body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param
    assert sentence in error["message"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_example_of_the_documentation(page_server: Running):
    page = (Path(__file__).parents[3] / "docs" / "page.md").read_text("utf-8")
    example = page.split("```sh\n")[1].split("```")[0]
    command = example.replace("http://127.0.0.1:8000", page_server.url)
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.startswith("WEBVTT\n\n00:00:00.200 --> "), done.stderr
    assert "nine zero zero eight seven" in done.stdout
