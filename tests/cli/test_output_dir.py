"""`--output-dir`: a file for each recording, refused before any work when it cannot be."""

from __future__ import annotations

import json
import os

from stapes.errors import AudioError


def test_a_file_for_each_recording_and_nothing_on_stdout(run, model, tmp_path):
    folder = tmp_path / "new" / "deep"
    model.answers = {"x/b.flac": model.said("ünf")}
    ran = run("transcribe", "--output-dir", str(folder), "a.wav", "x/b.flac")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"stapes: wrote {folder}/a.txt\nstapes: wrote {folder}/b.txt\n"
    assert (folder / "a.txt").read_bytes() == b"one two three\n"
    assert (folder / "b.txt").read_text("utf-8") == "ünf\n"
    assert sorted(os.listdir(folder)) == ["a.txt", "b.txt"]


def test_json_files(run, model, tmp_path):
    assert run("transcribe", "--format", "json", "--output-dir", str(tmp_path), "a.wav").code == 0
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["file"] == "a.wav"


def test_a_bad_recording_leaves_no_file(run, model, tmp_path):
    model.answers = {"bad.wav": AudioError("empty.")}
    assert run("transcribe", "--output-dir", str(tmp_path), "bad.wav", "a.wav").code == 3
    assert os.listdir(tmp_path) == ["a.txt"]


def refused(ran, model):
    assert (ran.code, ran.out, model.events) == (2, "", [])
    assert len(ran.err.splitlines()) == 1
    return ran.err


def test_two_recordings_with_one_name_are_refused(run, model, tmp_path):
    err = refused(run("transcribe", "--output-dir", str(tmp_path), "x/a.wav", "y/a.mp3"), model)
    assert "x/a.wav and y/a.mp3" in err


def test_overwriting_a_recording_is_refused(run, model, tmp_path):
    recording = tmp_path / "odd.txt"
    recording.write_bytes(b"RIFF")
    err = refused(run("transcribe", "--output-dir", str(tmp_path), str(recording)), model)
    assert "overwrite" in err
    assert recording.read_bytes() == b"RIFF"


def test_a_folder_that_is_a_file_is_refused(run, model, tmp_path):
    (tmp_path / "file").touch()
    refused(run("transcribe", "--output-dir", str(tmp_path / "file"), "a.wav"), model)


def test_a_folder_that_cannot_hold_files_is_refused(run, model):
    refused(run("transcribe", "--output-dir", "/proc/self/fd", "a.wav"), model)
