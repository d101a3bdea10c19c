"""`--format`: several formats at once, where they go, and the names that Whisper's command has."""

from __future__ import annotations

import io
import json
import os
import sys
from types import SimpleNamespace

import pytest

from stapes.errors import AudioError

SUFFIXES = (".txt", ".srt", ".vtt", ".tsv", ".json")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stdin(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"sound"), isatty=bool))


def refused(ran, model):
    assert (ran.code, ran.out, model.events) == (2, "", [])
    assert len(ran.err.splitlines()) == 1
    return ran.err


def test_subtitles_of_one_recording_go_to_stdout(run, model, here):
    ran = run("transcribe", "--format", "srt", "a.wav")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "1\n00:00:00,000 --> 00:00:01,250\none two three\n\n"
    assert os.listdir(here) == []


def test_several_formats_go_beside_the_recordings(run, model, here):
    (here / "x").mkdir()
    ran = run("transcribe", "--format", "srt,json", "a.wav", "x/b.mkv")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        f"stapes: wrote {path}" for path in ("a.srt", "a.json", "x/b.srt", "x/b.json")
    ]
    assert sorted(os.listdir(here)) == ["a.json", "a.srt", "x"]
    assert json.loads((here / "x" / "b.json").read_bytes())["file"] == "x/b.mkv"


@pytest.mark.parametrize("name", ["srt", "vtt", "tsv"])
def test_of_several_recordings_such_formats_go_beside_them(run, model, here, name):
    ran = run("transcribe", "--format", name, "a.wav", "b.wav")
    assert (ran.code, ran.out) == (0, "")
    assert sorted(os.listdir(here)) == [f"a.{name}", f"b.{name}"]


@pytest.mark.parametrize("name", ["text", "json"])
def test_of_several_recordings_lines_go_to_stdout(run, model, here, name):
    ran = run("transcribe", "--format", name, "a.wav", "b.wav")
    assert (len(ran.out.splitlines()), ran.err, os.listdir(here)) == (2, "", [])


def test_all_formats_into_a_folder(run, model, here):
    assert run("transcribe", "--format", "all", "--output-dir", "out", "a.wav").code == 0
    assert {path.suffix for path in (here / "out").iterdir()} == set(SUFFIXES)
    assert all(path.stem == "a" for path in (here / "out").iterdir())


def test_files_in_a_named_folder_are_replaced(run, model, here):
    (here / "a.srt").write_text("old")
    assert run("transcribe", "--format", "srt,vtt", "--output-dir", ".", "a.wav").code == 0
    assert (here / "a.srt").read_text().startswith("1\n")


def test_a_file_beside_a_recording_is_not_replaced(run, model, here):
    (here / "b.vtt").write_text("made by hand")
    err = refused(run("transcribe", "--format", "srt,vtt", "a.wav", "b.wav"), model)
    assert "b.vtt is there already" in err
    assert (here / "b.vtt").read_text() == "made by hand"


def test_a_folder_that_takes_no_files_is_refused(run, model):
    refused(run("transcribe", "--format", "srt,vtt", "/proc/self/fd/a.wav"), model)


def test_a_missing_folder_concerns_its_recording_alone(run, model, here):
    model.answers = {"no/b.wav": AudioError("it is not there.")}
    assert run("transcribe", "--format", "srt,vtt", "a.wav", "no/b.wav").code == 3
    assert sorted(os.listdir(here)) == ["a.srt", "a.vtt"]


def test_two_recordings_of_one_name_are_refused(run, model, here):
    err = refused(run("transcribe", "--format", "srt,vtt", "a.wav", "a.mp3"), model)
    assert "a.wav and a.mp3 would both be written to a.srt" in err


@pytest.mark.parametrize("argv", [("srt,vtt", "-"), ("srt", "-", "a.wav"), ("all", "a.wav", "-")])
def test_files_have_no_place_beside_stdin(run, model, here, stdin, argv):
    err = refused(run("transcribe", "--format", *argv), model)
    assert "give --output-dir" in err
    assert os.listdir(here) == []


def test_stdin_into_a_folder(run, model, here, stdin):
    assert run("transcribe", "--format", "srt,vtt", "--output-dir", "out", "-").code == 0
    assert sorted(os.listdir(here / "out")) == ["stdin.srt", "stdin.vtt"]


@pytest.mark.parametrize("listed", ["xml", "srt,xml", ""])
def test_an_unknown_format_is_refused(run, model, listed):
    assert "text, srt, vtt, tsv, json, all" in refused(
        run("transcribe", "--format", listed, "a.wav"), model
    )


def test_the_names_that_whisper_has(run, model, here):
    ran = run(
        *("transcribe", "--output_format", "all", "--output_dir=out"),
        *("--initial_prompt", "Ada, Bob", "--language", "English", "a.wav"),
    )
    assert ran.code == 0
    assert {path.suffix for path in (here / "out").iterdir()} == set(SUFFIXES)
    asked = model.events[1][1][1]
    assert (asked["context"], asked["language"]) == ("Ada, Bob", "English")


def test_no_other_underscores_are_taken(run, model):
    assert "max_new_tokens" in refused(run("transcribe", "--max_new_tokens", "3", "a.wav"), model)
