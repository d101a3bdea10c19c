"""Finding a model by name or folder, and what is said when there is none."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import stapes
from models.conftest import load
from sounds import babble
from stapes.errors import ConfigError, ModelError, RequestError
from stapes.models import registry


@pytest.mark.parametrize(
    "name", ["no-such-model", "", "TINY-EN", "a/b/c", "../x", "x\0y", "x" * 5000]
)
def test_an_unknown_name_lists_the_bundled_models(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ModelError) as refused:
        stapes.load(name)
    assert "bundled are: " in str(refused.value)
    for known in registry.available():
        assert known in str(refused.value)


def test_a_model_that_may_not_be_looked_up(monkeypatch: pytest.MonkeyPatch):
    def stat(path: Path, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(registry, "available", lambda: ("tiny-en",))
    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(ModelError, match=r"^/secret/model cannot be read: Permission denied\.$"):
        registry.find_model("/secret/model")


@pytest.mark.parametrize("model", [None, 5, b"tiny-en"])
def test_a_model_is_a_name_or_a_path(model: Any):
    with pytest.raises(RequestError, match="A model must be a name or a path, not "):
        stapes.load(model)


def test_a_file_is_no_model(tmp_path: Path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"x")
    for path in (file, str(file)):
        with pytest.raises(ModelError, match=r"model\.safetensors is a file"):
            stapes.load(path)


def test_a_folder_without_a_config_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"config\.json"):
        stapes.load(tmp_path)


@pytest.mark.parametrize("value", ["whisper", "qwen3", None, 3, ["qwen3_asr"]], ids=repr)
def test_other_kinds_of_model_are_refused(folder: Path, value: Any):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"model_type": value}
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="supported is 'qwen3_asr'") as refused:
        stapes.load(folder)
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize("missing", ["tokenizer.json", "config.json"])
def test_a_missing_file_is_named(folder: Path, missing: str):
    (folder / missing).unlink()
    with pytest.raises(ModelError, match=missing.replace(".", r"\.")):
        stapes.load(folder)


@pytest.mark.parametrize(
    "name", ["größe", "模型 一", "🦉", "with space", "-dash", "per%cent", "a'b"]
)
def test_folders_of_any_name(pristine: Path, tmp_path: Path, name: str):
    folder = shutil.copytree(pristine, tmp_path / name)
    model = stapes.load(folder, threads=1)
    assert model.name == str(folder)
    transcript = model.transcribe(babble(8000), sample_rate=16_000, vad=False)
    assert transcript.model == str(folder)


def test_a_folder_is_found_from_where_one_stands(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder.parent)
    assert stapes.load(folder.name, threads=1).name == folder.name
    monkeypatch.chdir(folder)
    assert stapes.load(".", threads=1).name == "."


def test_a_link_to_a_folder_is_a_folder(pristine: Path, tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to(pristine, target_is_directory=True)
    assert load(link).config.decoder.hidden_size == 64


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "q3"},
        {"weights": "F32"},
        {"encoder_weights": "int8"},
        {"kv": "q8"},
        {"kv": "int8"},
        {"threads": 0},
        {"threads": -1},
        {"threads": 1.5},
        {"threads": True},
    ],
    ids=str,
)
def test_wrong_options_are_refused_before_anything_is_read(options: dict[str, Any]):
    with pytest.raises(RequestError, match=next(iter(options))):
        stapes.load("no-such-model", **options)


def test_a_name_of_the_hub_that_cannot_be_fetched_says_so():
    with pytest.raises(ModelError, match="'nobody/nothing' is no folder, and could not be fetched"):
        stapes.load("nobody/nothing")


def test_bundled_models_are_found_by_name():
    for name in registry.available():
        assert registry.find_model(name).is_dir()
