"""`stapes speak`: what is written, what is said, and what is refused. The weights are random."""

from __future__ import annotations

import io
import json
import signal
import sys
import wave
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import stapes
from models.vevo2.tokenizer_checkpoint import melody
from models.vevo2.voice_setting import QUICK, voice_model
from models.vevo2.voice_setting import voice_root as voice_root
from stapes.audio import read_audio
from stapes.cli import main
from stapes.cli.progress import spoken
from stapes.errors import CancelledError
from stapes.models.vevo2.sound import VoiceProgress
from stapes.models.vevo2.tasks import TASKS
from stapes.output.sound_file import as_int16, write_sound

model = voice_model
EXACT = ("--weights", "f32", "--kv", "f32", "--acoustic-weights", "f32", "--threads", "1")
FEW = ("--seed", "1", "--steps", "2", "--codes-only", "--max-new-tokens", "25")
NOTE = "stapes: the weights of {} are licensed CC-BY-NC-ND-4.0 "


@pytest.fixture(scope="session")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of recordings, by their part in a task."""
    folder = tmp_path_factory.mktemp("sounds")
    lengths = {"voice": 1.7, "style": 1.3, "source": 1.9, "melody": 1.6}
    for seed, (name, seconds) in enumerate(lengths.items()):
        write_sound(folder / f"{name}.wav", melody(seconds, seed=seed), 24_000)
    return {name: str(folder / f"{name}.wav") for name in lengths}


@pytest.fixture
def speak(run, voice_root):
    """Runs the command with few steps and codes."""
    return lambda *argv: run("speak", "--model", str(voice_root), *EXACT, *FEW, *argv)


def wav(path: Path) -> tuple[int, np.ndarray]:
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        return file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), "<i2")


def test_a_wav_file_and_a_line_about_it(speak, sounds, model, voice_root, tmp_path):
    out = tmp_path / "größe.wav"
    argv = ("--text", "Good morning.", "--voice", sounds["voice"], "--voice-text", "la la")
    ran = speak(*argv, "--out", str(out))
    audio = model.speak("Good morning.", sounds["voice"], voice_text="la la", **QUICK)
    rate, samples = wav(out)
    assert (ran.code, ran.out, rate) == (0, "", 24_000)
    np.testing.assert_array_equal(samples, as_int16(audio.samples))
    note, warned, wrote = ran.err.splitlines()
    assert note.startswith(NOTE.format(voice_root))
    assert "no commercial use, no redistribution of converted weights" in note
    assert warned == f"stapes: warning: größe.wav: {audio.warnings[0]}"
    assert wrote.startswith(f"stapes: wrote {out}: {audio.duration_s:.2f} s of sound, made in ")
    assert wrote.endswith(" s, seed 1")
    assert [path.name for path in tmp_path.iterdir()] == ["größe.wav"]


def test_json(speak, sounds, tmp_path):
    out = str(tmp_path / "o.flac")
    ran = speak("--text", "Hi. Ho.", "--voice", sounds["voice"], "--out", out, "--json")
    found = json.loads(ran.out)
    assert list(found) == [
        *("file", "task", "duration_s", "sample_rate", "seed", "pieces", "pitch_steps"),
        *("finish_reason", "warnings", "codes", "timings_s"),
    ]
    assert (found["file"], found["task"], found["seed"]) == (out, "text_to_speech", 1)
    assert len(found["codes"]) == 25
    assert list(found["timings_s"]) == ["load", "reference", "codes", "mel", "samples", "total"]
    assert read_audio(out).duration_s == pytest.approx(found["duration_s"], abs=1e-3)


def test_text_from_standard_input_in_pieces(speak, sounds, tmp_path, monkeypatch):
    fake = SimpleNamespace(buffer=io.BytesIO("\ufeffGuten Tag. Bis später!\n".encode()))
    fake.isatty = lambda: False
    monkeypatch.setattr(sys, "stdin", fake)
    argv = ("--voice", sounds["voice"], "--out", str(tmp_path / "o.wav"), "--json")
    ran = speak("--text", "-", *argv, "--longest-piece", "14")
    assert json.loads(ran.out)["pieces"] == 2


@pytest.mark.parametrize(
    ("task", "given"),
    [
        ("text_to_singing", ("voice", "style")),
        ("singing_voice_synthesis", ("voice",)),
        ("editing", ("source",)),
        ("singing_style_conversion", ("source", "style")),
        ("humming_to_singing", ("melody", "voice")),
        ("instrument_to_singing", ("melody", "voice", "style")),
        ("style_converted_voice_conversion", ("source", "style", "voice")),
        ("style_converted_singing_conversion", ("source", "style")),
    ],
)
def test_every_task(task, given, speak, sounds, tmp_path):
    argv = [part for name in given for part in (f"--{name}", sounds[name])]
    style = TASKS[task].style
    argv += [f"--{style}-text", "do re"] if style else []
    out = tmp_path / "o.wav"
    ran = speak("--task", task, "--text", "tra la", *argv, "--out", str(out), "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["task"] == task
    assert wav(out)[1].any()


def test_the_list_of_tasks(run):
    ran = run("speak", "--tasks")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == list(TASKS)
    (editing,) = [line for line in ran.out.splitlines() if line.startswith("editing")]
    assert editing.split()[1:] == ["--text", "--source", "--source-text"]


def test_a_level_of_its_own_and_none(speak, sounds, tmp_path):
    argv = (
        "--text",
        "Hi.",
        "--voice",
        sounds["voice"],
        "--force",
        "--out",
        str(tmp_path / "o.wav"),
    )
    levels = []
    for level in (("--level", "-20"), ("--level", "-30"), ("--no-level",)):
        assert speak(*argv, *level).code == 0
        samples = wav(tmp_path / "o.wav")[1] / 32767
        levels.append(20 * np.log10(np.sqrt(np.mean(samples**2))))
    assert levels[:2] == pytest.approx([-20, -30], abs=0.1)
    assert min(abs(levels[2] - level) for level in levels[:2]) > 0.2


def test_a_file_is_not_replaced_unless_asked(speak, sounds, tmp_path):
    out = tmp_path / "o.wav"
    out.write_bytes(b"precious")
    argv = ("--text", "Hi.", "--voice", sounds["voice"], "--out", str(out))
    ran = speak(*argv)
    assert (ran.code, out.read_bytes()) == (2, b"precious")
    assert ran.err == f"stapes: error: {out} exists; --force replaces it.\n"
    assert speak(*argv, "--force").code == 0
    assert wav(out)[1].any()


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("--out", "o.wav"), 2, "text_to_speech needs a recording for the voice or the style"),
        (("--out", "o.txt", "--voice", "{voice}"), 2, "no ending of a sound file"),
        (("--out", "o", "--voice", "{voice}"), 2, "no ending of a sound file"),
        (("--out", "none/o.wav", "--voice", "{voice}"), 2, "a folder that does not exist"),
        (("--out", "{voice}", "--voice", "{voice}", "--force"), 2, "is one of the recordings"),
        (("--out", "o.wav", "--voice-text", "la"), 2, "--voice-text needs --voice"),
        (("--out", "o.wav", "--style-text", "la"), 2, "--style-text needs --style"),
        (("--out", "o.wav", "--voice", "{voice}", "--top-p", "2"), 2, "top_p"),
        (("--out", "o.wav", "--voice", "{voice}", "--steps", "0"), 2, "steps must lie between"),
        (("--out", "o.wav", "--voice", "{voice}", "--task", "poetry"), 2, "'poetry' is not one of"),
        (("--out", "o.wav", "--voice", "none.wav"), 3, "none.wav does not exist"),
        (("--out", "o.wav", "--voice", "-", "--text", "-"), 2, "the text or one recording"),
        (("--out", "o.wav", "--voice", "{voice}", "--text", "?!"), 2, "a letter or digit"),
        (("--out", "o.wav", "--voice", "{voice}", "--melody", "{melody}"), 2, "has no use for"),
    ],
)
def test_what_is_refused(argv, code, message, speak, sounds, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = () if "--text" in argv else ("--text", "Hello.")
    ran = speak(*text, *(part.format(**sounds) for part in argv))
    assert (ran.code, ran.out) == (code, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("stapes: error: ")
    assert message in line
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_none(run, sounds, tmp_path):
    argv = ("--text", "Hi.", "--voice", sounds["voice"], "--out", str(tmp_path / "o.wav"))
    ran = run("speak", "--model", "tiny-en", *argv)
    assert ran.code == 4
    assert ran.err.endswith("supported is 'vevo2'.\n")
    assert len(ran.err.splitlines()) == 1


def test_a_text_model_says_which_command_runs_a_voice(run, voice_root):
    ran = run("generate", "--model", str(voice_root), "--prompt", "Hi")
    assert ran.code == 4
    assert "is 'vevo2', a voice model, which `stapes speak` runs" in ran.err


def test_ctrl_c_writes_nothing(speak, sounds, tmp_path, monkeypatch):
    out = tmp_path / "o.wav"
    run_model = stapes.models.vevo2.pipeline.VoiceModel.run

    def interrupted(self, request, options, on_progress, should_cancel):
        signal.raise_signal(signal.SIGINT)
        return run_model(self, request, options, on_progress, should_cancel)

    monkeypatch.setattr(stapes.models.vevo2.pipeline.VoiceModel, "run", interrupted)
    ran = speak("--text", "Hi.", "--voice", sounds["voice"], "--out", str(out))
    assert ran.code == 130
    assert ran.err.splitlines()[-1].startswith("stapes: error: Cancelled ")
    assert not list(tmp_path.iterdir())
    assert issubclass(CancelledError, stapes.StapesError)


def test_a_trace(speak, sounds, tmp_path):
    trace = tmp_path / "trace.json"
    argv = ("--text", "Hi.", "--voice", sounds["voice"], "--out", str(tmp_path / "o.wav"))
    assert speak(*argv, "--trace", str(trace)).code == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert len(events) > 100  # of all stages, the decoder's many steps among them


def test_what_the_bar_says():
    codes = VoiceProgress(piece=0, pieces=1, stage="codes", done=7, total=500)
    steps = VoiceProgress(piece=1, pieces=4, stage="mel", done=8, total=32)
    assert spoken("o.wav", codes) == "o.wav: 7 codes"
    assert spoken("o.wav", steps) == "o.wav, piece 2 of 4: step 8 of 32"
    assert (codes.share, steps.share) == (0, (1 + 0.25) / 4)


def test_help_names_the_license(capfd):
    for command in ("speak", "convert-voice"):
        assert main([command, "--help"]) == 0
        assert "CC-BY-NC-ND-4.0" in capfd.readouterr().out
