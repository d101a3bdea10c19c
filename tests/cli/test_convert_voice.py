"""`stapes convert-voice`: what is written and what is refused. The weights are random."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cli.test_speak import EXACT, wav
from cli.test_speak import sounds as sounds
from models.vevo2.voice_setting import voice_model
from models.vevo2.voice_setting import voice_root as voice_root
from stapes.audio import read_audio
from stapes.output.sound_file import as_int16

model = voice_model


@pytest.fixture
def convert(run, voice_root):
    few = ("--seed", "1", "--steps", "2", "--max-new-tokens", "25")
    return lambda *argv: run("convert-voice", "--model", str(voice_root), *EXACT, *few, *argv)


def test_in_its_own_style(convert, sounds, model, tmp_path):
    out = tmp_path / "o.wav"
    ran = convert(sounds["source"], "--voice", sounds["voice"], "--out", str(out))
    audio = model.convert_voice(sounds["source"], sounds["voice"], seed=1, steps=2)
    assert (ran.code, ran.out) == (0, "")
    rate, samples = wav(out)
    np.testing.assert_array_equal(samples, as_int16(audio.samples))
    assert samples.size / rate == read_audio(sounds["source"]).duration_s == 1.9
    assert ran.err.splitlines()[-1].startswith(f"stapes: wrote {out}: 1.90 s of sound, made in ")


@pytest.mark.parametrize("singing", [False, True])
def test_in_another_style(singing, convert, sounds, tmp_path):
    style = ("--style", sounds["style"], "--style-text", "do re", "--text", "fa so", "--codes-only")
    out = ("--out", str(tmp_path / "o.mp3"), "--json")
    ran = convert(sounds["source"], *style, *(["--singing"] if singing else []), *out)
    assert ran.code == 0, ran.err
    kind = "singing" if singing else "voice"
    assert json.loads(ran.out)["task"] == f"style_converted_{kind}_conversion"
    assert read_audio(tmp_path / "o.mp3").duration_s > 1


def test_standard_input(convert, sounds, tmp_path, monkeypatch):
    buffer = io.BytesIO(Path(sounds["source"]).read_bytes())
    fake = SimpleNamespace(buffer=buffer, isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", fake)
    argv = ("--voice", sounds["voice"], "--json")
    piped = convert("-", *argv, "--out", str(tmp_path / "a.wav"))
    named = convert(sounds["source"], *argv, "--out", str(tmp_path / "b.wav"))
    assert json.loads(piped.out)["codes"] == json.loads(named.out)["codes"]


def test_pitch_steps_are_told_and_can_be_given(convert, sounds, model, tmp_path):
    argv = (sounds["source"], "--voice", sounds["voice"], "--json", "--force")
    out = ("--out", str(tmp_path / "o.wav"))
    estimated = json.loads(convert(*argv, *out).out)["pitch_steps"]
    source, voice = (model.reference(sounds[name]) for name in ("source", "voice"))
    assert estimated == source.steps_to(voice)
    assert json.loads(convert(*argv, *out, "--pitch-steps", "-4").out)["pitch_steps"] == -4


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("{source}",), 2, "needs a recording for the voice"),
        (("{source}", "--voice", "{voice}", "--text", "la"), 2, "--text needs --style"),
        (("{source}", "--style", "{style}"), 2, "--style needs --text"),
        (("{source}", "--style", "{style}", "--text", "la"), 2, "needs the text of the recording"),
        (("{source}", "--style-text", "la", "--voice", "{voice}"), 2, "--style-text needs --style"),
        (("-", "--voice", "-"), 2, "the text or one recording"),
        (("none.wav", "--voice", "{voice}"), 3, "none.wav does not exist"),
    ],
)
def test_what_is_refused(argv, code, message, convert, sounds, tmp_path):
    out = tmp_path / "o.wav"
    ran = convert(*(part.format(**sounds) for part in argv), "--out", str(out))
    assert (ran.code, ran.out) == (code, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("stapes: error: ")
    assert message in line
    assert not out.exists()


def test_silence_and_noise(convert, sounds, tmp_path):
    from stapes.output.sound_file import write_sound

    noise = np.random.default_rng(0).normal(0, 0.1, 24_000).astype(np.float32)
    for name, samples in (("silence", np.zeros(24_000, np.float32)), ("noise", noise)):
        write_sound(tmp_path / f"{name}.wav", samples, 24_000)
    argv = ("--voice", sounds["voice"], "--out", str(tmp_path / "o.wav"))
    silent = convert(str(tmp_path / "silence.wav"), *argv)
    assert (silent.code, "silence.wav is silent" in silent.err) == (3, True)
    unvoiced = convert(str(tmp_path / "noise.wav"), *argv)
    assert (unvoiced.code, "no voiced part" in unvoiced.err) == (3, True)
