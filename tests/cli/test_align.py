"""`stapes align`: what reaches the aligner, what is printed, and what is refused."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stapes
from aligner_checkpoints import write_aligner
from checkpoints import Sizes
from cli.conftest import TRANSCRIPT
from stapes.errors import AudioError, CapacityError, ModelError
from stapes.models.transcript import Segment, Transcript, Word

TALK = Path(__file__).parents[2] / "examples" / "digits-3.wav"
WORDS = (Word("One,", 0.08, 0.4), Word("two!", 0.48, 1.2))
ALIGNED = replace(
    TRANSCRIPT,
    text="One, two!",
    warnings=("cut short.",),
    segments=(Segment(0.08, 1.2, "One, two!", "English", words=WORDS),),
)


@dataclass
class FakeAligner:
    answer: Transcript | BaseException = ALIGNED
    loaded: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)

    def load(self, model: object, **options: object) -> FakeAligner:
        self.loaded.append((model, options))
        return self

    def transcript(self, source: Any, text: str, **options: Any) -> Transcript:
        self.asked.append((source if isinstance(source, str) else source.read(), text, options))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def aligner(monkeypatch: pytest.MonkeyPatch) -> FakeAligner:
    fake = FakeAligner()
    monkeypatch.setattr(stapes, "load_aligner", fake.load)
    return fake


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "größe.txt"
    path.write_bytes("\ufeffOne, two!\n".encode())
    return str(path)


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch):
    """Puts bytes into standard input."""

    def put(data: bytes) -> None:
        fake = SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False)
        monkeypatch.setattr(sys, "stdin", fake)

    return put


def test_json_by_default(run, aligner, text):
    ran = run("align", "a.wav", "--text", text, "--model", "folder")
    printed = json.loads(ran.out)
    assert ran.code == 0
    assert ran.err == "stapes: warning: a.wav: cut short.\n"
    assert (printed["file"], printed["text"]) == ("a.wav", "One, two!")
    assert printed["segments"][0]["words"] == [
        {"text": "One,", "start_s": 0.08, "end_s": 0.4},
        {"text": "two!", "start_s": 0.48, "end_s": 1.2},
    ]
    assert aligner.asked == [("a.wav", "One, two!\n", {"language": None})]


def test_a_table_has_a_row_for_each_word(run, aligner, text):
    ran = run("align", "a.wav", "--text", text, "--model", "folder", "--format", "tsv")
    assert ran.out == "start\tend\ttext\n80\t400\tOne,\n480\t1200\ttwo!\n"


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("srt", "1\n00:00:00,080 --> 00:00:01,200\nOne, two!\n\n"),
        ("vtt", "WEBVTT\n\n00:00:00.080 --> 00:00:01.200\nOne, two!\n\n"),
    ],
)
def test_subtitles(run, aligner, text, name, printed):
    ran = run("align", "a.wav", "--text", text, "--model", "folder", "--format", name)
    assert ran.out.strip() == printed.strip()


def test_every_option_reaches_the_aligner(run, aligner, text):
    runtime = ("--weights", "bf16", "--encoder-weights", "f32", "--kv", "f32", "--threads", "3")
    runtime += ("--activation-bits", "13")
    ran = run("align", "a.wav", "--text", text, "--model", "folder", "--language", "de", *runtime)
    assert ran.code == 0
    options = {"weights": "bf16", "encoder_weights": "f32", "kv": "f32", "threads": 3}
    options |= {"activation_bits": 13}
    assert aligner.loaded == [("folder", options | {"tracer": None})]
    assert aligner.asked[0][2] == {"language": "German"}


def test_the_text_from_standard_input(run, aligner, stdin):
    stdin(b"One, two!")
    assert run("align", "a.wav", "--text", "-", "--model", "folder").code == 0
    assert aligner.asked[0][:2] == ("a.wav", "One, two!")


def test_the_recording_from_standard_input(run, aligner, stdin, text):
    stdin(b"sound")
    assert run("align", "-", "--text", text, "--model", "folder").code == 0
    assert aligner.asked[0][0] == b"sound"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no word"),
        (b" ... \n", "holds no word"),
        (b"one \xff", "is not UTF-8 text: byte 4 is 0xff"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_text_that_is_none_is_refused_before_the_model_is_loaded(
    run, aligner, tmp_path, content, message
):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    ran = run("align", "a.wav", "--text", str(path), "--model", "folder")
    assert (ran.code, ran.out, aligner.loaded) == (2, "", [])
    assert message in ran.err
    assert str(path) in ran.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("a.wav", "--model", "m"), "Missing option '--text'"),
        (("-", "--text", "-", "--model", "m"), "not both"),
        (("a.wav", "--text", "TEXT", "--model", "m", "--format", "text"), "'text' is not one of"),
        (("a.wav", "--text", "TEXT", "--model", "m", "--language", "xx"), "'xx' is not known"),
    ],
)
def test_bad_usage(run, aligner, text, argv, message):
    ran = run("align", *(text if word == "TEXT" else word for word in argv))
    assert (ran.code, ran.out, aligner.loaded) == (2, "", [])
    assert message in ran.err


@pytest.mark.parametrize(
    ("error", "code"),
    [(AudioError("not audio."), 3), (ModelError("bad."), 4), (CapacityError("too long."), 5)],
)
def test_errors_become_exit_codes(run, aligner, text, error, code):
    aligner.answer = error
    ran = run("align", "a.wav", "--text", text, "--model", "folder")
    assert (ran.code, ran.out) == (code, "")
    assert str(error) in ran.err


SMALL = Sizes(d_model=32, downsample_hidden_size=4, encoder_layers=1)


def test_from_model_to_words(run, tmp_path, text):
    """A real file, a checkpoint, and the same one converted; the trace says where time went."""
    folder, file = str(write_aligner(tmp_path / "model", SMALL)), str(tmp_path / "m.stapes")
    trace = tmp_path / "trace.json"
    asked = ("--text", text, "--threads", "1", "--format", "tsv")
    ran = run("align", str(TALK), "--model", folder, *asked, "--trace", str(trace))
    rows = [line.split("\t") for line in ran.out.splitlines()[1:]]
    assert ran.code == 0
    assert [row[2] for row in rows] == ["One,", "two!"]
    times = [int(time) for row in rows for time in row[:2]]
    assert times == sorted(times)
    assert "encode" in trace.read_text()
    assert run("convert", folder, file, "--threads", "1").code == 0
    assert run("align", str(TALK), "--model", file, *asked).out == ran.out
    told = json.loads(run("info", file, "--json").out)
    assert told["architecture"] == "qwen3_forced_aligner"
    assert run("transcribe", str(TALK), "--model", folder).code == 4
