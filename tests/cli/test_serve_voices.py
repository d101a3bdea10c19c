"""The voices of `stapes serve`: what is loaded at its start, what is refused. Random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stapes.server.run
from models.vevo2.tokenizer_checkpoint import melody
from models.vevo2.voice_setting import voice_root as voice_root
from stapes.models.vevo2.pipeline import VoiceModel
from stapes.output.sound_file import write_sound


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings, one with a colon in its name, and what is said in one."""
    found = tmp_path_factory.mktemp("voices")
    for name, seconds in (("anna", 1.7), ("a:b", 1.5), ("short", 0.5), ("long", 31.0)):
        write_sound(found / f"{name}.wav", melody(seconds), 24_000)
    write_sound(found / "silent.wav", np.zeros(24_000, np.float32), 24_000)
    (found / "anna.txt").write_text("\ufeffla la\n", "utf-8")
    (found / "latin.txt").write_bytes(b"gr\xfc\xdfe")
    return found


@pytest.fixture
def serve(run, monkeypatch):
    """Runs the command up to where it would listen; `served` is what it has."""

    class Serving:
        served = None

        def __call__(self, *argv: str):
            return run("serve", "--port", "0", "--threads", "1", *argv)

    found = Serving()
    monkeypatch.setattr(
        stapes.server.run,
        "run",
        lambda app, *rest: setattr(found, "served", app.web.state.shared.served),
    )
    return found


def test_voices_are_ready_before_the_server_is(serve, voice_root, folder, monkeypatch):
    prepared: list[str] = []
    original = VoiceModel.prepare_voice

    def prepare(model, voice):
        prepared.append(voice.name)
        return original(model, voice)

    monkeypatch.setattr(VoiceModel, "prepare_voice", prepare)
    anna, other = f"anna={folder}/anna.wav:{folder}/anna.txt", f"b.2={folder}/a:b.wav"
    ran = serve("--voice-model", f"tts-1={voice_root}", "--voice", anna, "--voice", other)
    assert ran.code == 0, ran.err
    speaker = serve.served.speakers["tts-1"]
    assert {name: voice.text for name, voice in speaker.voices.items()} == {
        "anna": "la la",
        "b.2": "",
    }
    assert len(prepared) == 2
    assert {"ar", "flow_matching", "vocoder"} <= set(speaker.model.parts.load_s)
    assert list(serve.served.speech) == ["tiny-en"]
    note, warning, *_ = ran.err.splitlines()
    assert note.startswith(f"stapes: the weights of {voice_root} are licensed CC-BY-NC-ND-4.0")
    assert warning.startswith("stapes: warning: b.2: ")
    assert "without its text" in warning


@pytest.mark.parametrize(
    ("voices", "sentence"),
    [
        ((), "--voice-model needs a --voice NAME=REF"),
        (("anna.wav",), "--voice is NAME=REF or NAME=REF:TEXTFILE, not 'anna.wav'."),
        (("a=anna.wav", "a=a:b.wav"), "Two voices are called 'a'."),
        (("a=nobody.wav",), "nobody.wav"),
        (("a=silent.wav",), "silent.wav is silent"),
        (("a=anna.wav:nothing.txt",), "nothing.txt cannot be read: No such file or directory."),
        (("a=anna.wav:latin.txt",), "latin.txt is not UTF-8 text: byte 2 is wrong."),
        (("a=long.wav:anna.txt",), "give a shorter recording with its text."),
    ],
)
def test_what_is_refused(voices, sentence, serve, voice_root, folder, monkeypatch):
    monkeypatch.chdir(folder)
    given = [part for voice in voices for part in ("--voice", voice)]
    ran = serve("--voice-model", str(voice_root), *given)
    assert ran.code != 0
    assert serve.served is None
    assert sentence in ran.err.replace("\n", " ")
    assert "Traceback" not in ran.err


def test_a_voice_needs_a_model(serve):
    ran = serve("--voice", "a=anna.wav")
    assert ran.code == 2
    assert "--voice needs --voice-model" in ran.err


def test_two_models_of_one_name(serve, voice_root, folder):
    voice = f"a={folder}/anna.wav"
    ran = serve("--voice-model", f"tiny-en={voice_root}", "--voice", voice)
    assert ran.code == 2
    assert "Two models are called 'tiny-en'" in ran.err
