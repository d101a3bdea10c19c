"""Vevo2 by its name on the hub: what is fetched, and what is asked of the server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import stapes
from models.hub_setting import Setting, hub_setting
from models.vevo2.voice_setting import recording
from models.vevo2.voice_setting import voice_root as voice_root
from stapes.errors import ModelError
from stapes.models.vevo2 import published

NAME = "owner/Vevo2"


@pytest.fixture
def setting(tmp_path: Path, monkeypatch, voice_root: Path) -> Iterator[Setting]:
    root = shutil.copytree(voice_root, tmp_path / "published")
    shutil.move(root / "whisper-medium", tmp_path / "whisper")
    with hub_setting(tmp_path, monkeypatch) as found:
        found.hub.add_folder(NAME, root)
        whisper = found.hub.add_folder(published.WHISPER, tmp_path / "whisper")
        whisper.files["pytorch_model.bin"] = b"not needed"
        yield found


def test_a_model_by_name(setting):
    model = stapes.load_voice(NAME, threads=1)
    source, voice = recording(1.0, 1), recording(1.2, 2)
    assert model.convert_voice(source, voice, seed=1, steps=1).samples.size == 24_000
    fetched = {path.rsplit("/", 1)[-1] for _, path, _ in setting.hub.requests if "resolve" in path}
    assert {"model.safetensors", "whisper_stats.pt", "tokenizer.json"} <= fetched
    assert not fetched & {"optimizer.pt", "model_1.safetensors", "pytorch_model.bin"}


def test_what_is_there_is_used_without_a_request(setting):
    stapes.load_voice(NAME, threads=1)
    asked = setting.asked()
    setting.offline()
    model = stapes.load_voice(NAME, threads=1)
    assert setting.asked() == asked
    assert published.whisper_of(model.parts.layout) == published.whisper()


def test_info_and_the_list_of_models_know_it(setting, run):
    stapes.load_voice(NAME, threads=1)
    asked = setting.asked()
    told = json.loads(run("info", "--json", "--no-hash", NAME).out)
    assert (told["architecture"], told["vocoder"]["weights"]) == ("vevo2", "bf16")
    assert setting.asked() == asked
    listed = json.loads(run("models", "--json").out)["models"]
    (entry,) = [entry for entry in listed if entry["name"] == NAME]
    assert (entry["kind"], entry["where"]) == ("voice", "hub cache")


def test_fetching_ahead_says_what_does_it(setting, run):
    ran = run("models", "fetch", NAME)
    assert ran.code == 4
    assert "is a voice model, which the first `stapes speak` of it downloads" in ran.err


def test_a_repository_of_something_else(setting):
    with pytest.raises(ModelError, match=r"whisper-medium is no Vevo2 model: it lacks .*vocoder"):
        stapes.load_voice(published.WHISPER)
    with pytest.raises(ModelError, match="no such repository"):
        stapes.load_voice("owner/nothing")


def test_a_part_that_is_missing_there(setting):
    del setting.hub.repositories[NAME].files["vocoder/model.safetensors"]
    with pytest.raises(ModelError, match=r"it lacks vocoder/model\.safetensors"):
        stapes.load_voice(NAME)


def test_no_whisper_anywhere(tmp_path, voice_root, monkeypatch):
    root = shutil.copytree(voice_root, tmp_path / "a" / "Vevo2")
    shutil.rmtree(root / "whisper-medium")
    with hub_setting(tmp_path, monkeypatch):
        model = stapes.load_voice(root, threads=1)
        with pytest.raises(ModelError, match=r"no Whisper medium.*; openai/whisper-medium of the"):
            model.convert_voice(recording(), recording(1.2, 1), seed=1, steps=1)
