"""`stapes transcribe`: what goes where, and what one failure does to the rest."""

from __future__ import annotations

import io
import json
import os
import sys
from types import SimpleNamespace

import pytest

import stapes
from stapes.errors import AudioError, CapacityError, ModelError, NumericError

RUNTIME = ("weights", "encoder_weights", "kv", "threads", "activation_bits", "tracer")


def test_text_goes_to_stdout_one_recording_after_another(run, model):
    model.answers = {"b.wav": model.said("four\nfive"), "c.wav": model.said("")}
    ran = run("transcribe", "a.wav", "b.wav", "c.wav")
    assert (ran.code, ran.out, ran.err) == (0, "one two three\nfour five\n\n", "")


def test_json_is_one_object_a_line_with_the_fields_in_order(run, model):
    model.answers = {"ü.wav": model.said("über 数字", language=None, warnings=("cut short.",))}
    ran = run("transcribe", "--format", "json", "a.wav", "ü.wav")
    first, second = ran.out.splitlines()
    assert list(json.loads(first)) == [
        "file", "text", "language", "duration_s", "model", "finish_reason", "truncated",
        "warnings", "token_ids", "tokens", "timings_s", "segments",
    ]  # fmt: skip
    assert json.loads(second)["language"] is None
    assert "über 数字" in second
    assert ran.err == "stapes: warning: ü.wav: cut short.\n"


def test_the_model_is_loaded_once_and_first(run, model):
    run("transcribe", "a.wav", "b.wav")
    assert [kind for kind, _ in model.events] == ["load", "transcribe", "transcribe"]


def test_words_are_timed_by_the_aligner_that_is_named(run, model, monkeypatch):
    loaded = []
    monkeypatch.setattr(stapes, "load_aligner", lambda path, **_: loaded.append(path) or "aligner")
    assert run("transcribe", "a.wav", "--words", "--aligner", "./folder").code == 0
    assert loaded == ["./folder"]
    assert model.events[-1][1][1]["aligner"] == "aligner"


def test_without_words_no_aligner_is_loaded(run, model, monkeypatch):
    monkeypatch.setattr(stapes, "load_aligner", lambda *_, **__: pytest.fail("loaded"))
    ran = run("transcribe", "a.wav", "--aligner", "./folder")
    assert (ran.code, ran.err) == (0, "stapes: --aligner does nothing without --words.\n")
    assert run("transcribe", "a.wav").err == ""


def test_defaults_are_those_of_the_python_interface(run, model):
    run("transcribe", "a.wav")
    assert model.events == [
        ("load", ("tiny-en", {**dict.fromkeys(RUNTIME), "kv": "f16"})),
        (
            "transcribe",
            (
                "a.wav",
                {
                    "language": None,
                    "context": "",
                    "max_new_tokens": None,
                    "loop_detection": True,
                    "batch": None,
                    "chunk_seconds": 30.0,
                    "vad": True,
                },
            ),
        ),
    ]


def test_every_option_reaches_the_model(run, model):
    ran = run(
        *("transcribe", "--model", "folder", "--weights", "bf16", "--kv", "f32", "--threads", "3"),
        *("--encoder-weights", "f32", "--activation-bits", "13"),
        *("--language", "en", "--context", "Ada, Bob", "--max-new-tokens", "7", "a.wav"),
    )
    assert ran.code == 0
    (_, (name, loaded)), (_, (_, asked)) = model.events
    runtime = dict(zip(RUNTIME, ("bf16", "f32", "f32", 3, 13, None), strict=True))
    assert (name, loaded) == ("folder", runtime)
    assert asked["language"] == "English"
    assert (asked["context"], asked["max_new_tokens"]) == ("Ada, Bob", 7)


def test_one_bad_recording_does_not_stop_the_others(run, model):
    model.answers = {"bad.wav": AudioError("not audio.")}
    ran = run("transcribe", "a.wav", "bad.wav", "c.wav")
    assert (ran.code, ran.out) == (3, "one two three\none two three\n")
    assert ran.err == "stapes: error: bad.wav: not audio.\n"


def test_a_recording_named_in_its_error_is_not_named_twice(run, model):
    model.answers = {"bad.wav": AudioError("'bad.wav' is empty.")}
    assert run("transcribe", "bad.wav").err == "stapes: error: 'bad.wav' is empty.\n"


def test_what_does_not_fit_does_not_stop_the_others_and_outranks_bad_audio(run, model):
    model.answers = {"long.wav": CapacityError("needs 9 GB."), "bad.wav": AudioError("empty.")}
    ran = run("transcribe", "long.wav", "bad.wav", "c.wav")
    assert (ran.code, ran.out) == (5, "one two three\n")


def test_a_broken_model_stops_everything(run, model):
    model.answers = {"a.wav": NumericError("layer 3 is NaN.")}
    ran = run("transcribe", "a.wav", "b.wav")
    assert (ran.code, ran.out, ran.err) == (4, "", "stapes: error: layer 3 is NaN.\n")
    assert len(model.events) == 2


def test_a_bad_model_is_told_before_any_recording_is_touched(run, model):
    model.load_error = ModelError("no config.json in folder.")
    ran = run("transcribe", "--model", "folder", "missing.wav")
    assert (ran.code, ran.err) == (4, "stapes: error: no config.json in folder.\n")


def test_stdin(run, model, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"sound"), isatty=bool))
    ran = run("transcribe", "--format", "json", "-")
    assert json.loads(ran.out)["file"] == "-"
    assert model.events[1][1][0] == b"sound"


def test_stdin_can_be_read_only_once(run, model):
    ran = run("transcribe", "-", "-")
    assert (ran.code, model.events) == (2, [])
    assert "only once" in ran.err


def test_a_terminal_is_no_recording(run, model, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    ran = run("transcribe", "-")
    assert (ran.code, model.events) == (2, [])
    assert "pipe a file" in ran.err


def test_a_closed_stdin_is_no_recording(run, model, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert run("transcribe", "-").code == 2


def test_a_leading_dash_after_two_dashes_is_a_file(run, model):
    assert run("transcribe", "--", "-a.wav").code == 0
    assert model.events[1][1][0] == "-a.wav"


@pytest.mark.parametrize("language", ["", " ", "None"])
def test_no_language_is_not_a_language(run, model, language):
    assert run("transcribe", "--language", language, "a.wav").code == 2
    assert model.events == []


def test_the_language_is_checked_before_the_model_is_loaded(run, model):
    ran = run("transcribe", "--language", "xx", "a.wav")
    assert (ran.code, model.events) == (2, [])
    assert ran.err.startswith("stapes: error: ")
    assert "xx" in ran.err
    assert "English" in ran.err


@pytest.mark.parametrize("name", ["a\nb.wav", "\x1b[2Jc.wav"])
def test_control_characters_of_a_file_name_do_not_reach_the_terminal(run, model, name):
    model.answers = {name: AudioError("empty.")}
    ran = run("transcribe", name)
    assert len(ran.err.splitlines()) == 1
    assert "\x1b" not in ran.err


@pytest.mark.parametrize(("text", "printed"), [("one", "one\n"), ("", "")])
def test_of_what_was_interrupted_the_text_is_printed_if_there_is_any(run, model, text, printed):
    model.answers["a.wav"] = model.said(text, finish_reason="cancelled", warnings=("Stopped.",))
    ran = run("transcribe", "a.wav")
    assert (ran.out, ran.err) == (printed, "stapes: warning: a.wav: Stopped.\n")


def test_a_trace_is_written_even_when_a_recording_fails(run, model, tmp_path):
    model.answers["bad.wav"] = AudioError("it is empty.")
    target = tmp_path / "trace.json"
    assert run("transcribe", "--trace", str(target), "bad.wav").code == 3
    assert "traceEvents" in target.read_text()


def test_a_trace_that_cannot_be_written_is_refused_before_work(run, model, tmp_path):
    result = run("transcribe", "--trace", str(tmp_path / "no" / "trace.json"), "a.wav")
    assert result.code == 2
    assert "cannot write the trace" in result.err
    assert not model.events


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_trace_that_finds_no_room_is_what_does_not_fit(run, model):
    result = run("transcribe", "--trace", "/dev/full", "a.wav")
    assert result.code == 5
    assert "cannot write the trace /dev/full: No space left on device." in result.err
