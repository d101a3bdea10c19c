"""Models by name on the command line: said once, done once; and `stapes models`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints import Sizes, write_checkpoint
from fake_hub import Repository, fake_hub
from models.hub_setting import Setting, hub_setting
from stapes.models import convert as conversion
from stapes.models.hub import snapshot
from text_models import QWEN2, write_folder, write_gguf
from text_models import random_tensors as text_tensors

SIZES = Sizes(d_model=32, downsample_hidden_size=4, encoder_layers=1, num_hidden_layers=1)
EXAMPLES = Path(__file__).parents[2] / "examples"
WAV = str(min(EXAMPLES.glob("*.wav")))
NAME, TEXT_NAME, GGUF_NAME = "me/tiny", "me/text", "me/files"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("originals")
    (root / "files").mkdir()
    write_gguf(root / "files" / "a.gguf", QWEN2, text_tensors(QWEN2))
    return {
        NAME: write_checkpoint(root / "speech", SIZES),
        TEXT_NAME: write_folder(root / "text", QWEN2, text_tensors(QWEN2)),
        GGUF_NAME: root / "files",
    }


@pytest.fixture
def setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: dict[str, Path]
) -> Iterator[Setting]:
    monkeypatch.chdir(tmp_path)
    with hub_setting(tmp_path, monkeypatch) as found:
        for name, folder in folders.items():
            found.hub.add_folder(name, folder)
        yield found


@pytest.fixture
def repository(setting: Setting) -> Repository:
    return setting.hub.repositories[NAME]


def transcribe(*argv: str) -> tuple[str, ...]:
    limited = ("--threads", "1", "--max-new-tokens", "4", "--no-vad")
    return ("transcribe", *limited, *argv, WAV)


def generate(*argv: str) -> tuple[str, ...]:
    return ("generate", "--threads", "1", "--max-new-tokens", "4", "--prompt", "a fox", *argv)


def notes(text: str) -> list[str]:
    """Lines about the model, without those about an answer."""
    about_answers = ("prompt tokens in", "cut short")
    return [line for line in text.splitlines() if not any(x in line for x in about_answers)]


# -- the first use and the later ones ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "command"),
    [(NAME, transcribe), (TEXT_NAME, generate), (f"{GGUF_NAME}/a.gguf", generate)],
)
def test_a_name_is_downloaded_and_converted_once(run, setting: Setting, folders, name, command):
    first = run(*command("--model", name))
    assert first.code == 0
    assert notes(first.err) == [
        f"stapes: downloading {name} from {setting.hub.url}",
        f"stapes: converting {name} to q8 once, into {setting.converted}",
    ]
    asked = setting.asked()
    setting.offline()
    setting.patch.setattr(conversion, "write_packed", None)  # nothing is converted again
    second = run(*command("--model", name))
    assert (second.code, notes(second.err)) == (0, [])
    assert setting.asked() == asked
    owner, repository, *file = name.split("/")
    here = folders[f"{owner}/{repository}"].joinpath(*file)
    assert first.out == second.out == run(*command("--model", str(here))).out


def test_transcripts_name_the_model_as_it_was_named(run, setting: Setting):
    for _ in range(2):
        ran = run(*transcribe("--model", NAME, "--format", "json"))
        assert json.loads(ran.out)["model"] == NAME


def test_other_formats_are_converted_beside(run, setting: Setting):
    for argv in ((), ("--weights", "q4"), ("--weights", "q8", "--encoder-weights", "f32")):
        ran = run(*transcribe("--model", NAME, *argv))
        assert ran.code == 0
        assert f"converting {NAME} to " in ran.err
    assert "to q8 with an encoder in f32 once" in ran.err
    assert len(list(setting.converted.rglob("*.stapes"))) == 3
    assert notes(run(*transcribe("--model", NAME, "--weights", "q8")).err) == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (transcribe("--model", TEXT_NAME), "a text model, which `stapes generate` runs"),
        (generate("--model", NAME), "a speech model, which `stapes transcribe` runs"),
    ],
)
def test_another_kind_is_refused_before_its_weights(run, setting: Setting, argv, message):
    ran = run(*argv)
    assert (ran.code, ran.out) == (4, "")
    assert message in ran.err
    assert setting.hub.asked_for(".safetensors") == []
    assert not setting.converted.exists()


def test_a_full_disk_leaves_the_original_to_be_used(run, setting: Setting):
    from stapes.weights import atomic

    usage = atomic.shutil.disk_usage("/")._replace(free=1000)
    setting.patch.setattr(atomic.shutil, "disk_usage", lambda path: usage)
    ran = run(*transcribe("--model", NAME))
    assert ran.code == 0
    assert ran.out.strip()
    warning = notes(ran.err)[-1]
    assert warning.startswith(f"stapes: warning: {NAME}: used as it was downloaded")
    assert warning.endswith("bytes, but the disk has 1000 left.")
    assert list(setting.converted.rglob("*.*")) == []


def test_a_cache_that_cannot_be_written_leaves_the_original(run, setting: Setting):
    setting.converted.parent.write_bytes(b"")
    ran = run(*transcribe("--model", NAME))
    assert (ran.code, "cannot be made" in ran.err) == (0, True)


def test_errors_are_one_sentence(run, setting: Setting, repository: Repository):
    repository.error = (403, "", "no")
    ran = run(*transcribe("--model", NAME))
    assert (ran.code, ran.out) == (4, "")
    told, refused = ran.err.splitlines()
    assert told.startswith("stapes: downloading me/tiny from http")
    assert refused.startswith("stapes: error: 'me/tiny' is no folder, and could not be fetched: ")


def test_convert_and_info_take_names(run, setting: Setting, tmp_path: Path):
    file = str(tmp_path / "x.stapes")
    ran = run("convert", NAME, file, "--threads", "1")
    assert ran.code == 0
    assert notes(ran.err)[0] == f"stapes: downloading {NAME} from {setting.hub.url}"
    assert run(*transcribe("--model", file)).out == run(*transcribe("--model", NAME)).out
    told = json.loads(run("info", "--json", "--no-hash", NAME).out)
    assert (told["architecture"], told["converted"]) == ("qwen3_asr", False)


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"STAPES_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a/converted"),
        ({"STAPES_CACHE": "~/a"}, "/home/me/a/converted"),
        ({"STAPES_CACHE": "", "XDG_CACHE_HOME": "/b"}, "/b/stapes/converted"),
        ({}, "/home/me/.cache/stapes/converted"),
    ],
)
def test_where_converted_files_are_kept(monkeypatch, environment, folder):
    from stapes.cli.ready import converted_cache

    for name in ("STAPES_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **environment}.items():
        monkeypatch.setenv(name, value)
    assert converted_cache().folder == Path(folder)


# -- stapes models -------------------------------------------------------------------------------


def listed(run) -> list[dict[str, object]]:
    ran = run("models", "--json")
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)["models"]


def test_the_list(run, setting: Setting):
    setting.hub.repositories["me/other"] = Repository({"config.json": b'{"model_type": "bert"}'})
    for argv in (("fetch", NAME), ("fetch", GGUF_NAME, "--weights", "q4"), ("fetch", "me/other")):
        run("models", *argv, "--threads", "1")
    found = {(e["name"], e["where"]): e for e in listed(run)}
    assert {key: entry["kind"] for key, entry in found.items()} == {
        ("tiny-en", "bundled"): "speech",
        (NAME, "hub cache"): "speech",
        (NAME, "converted"): "speech",
        (f"{GGUF_NAME}/a.gguf", "hub cache"): "text",
        (GGUF_NAME, "converted"): "text",
    }
    assert found[NAME, "converted"]["formats"] == {"decoder": "q8", "encoder": "q8"}
    for key, entry in found.items():
        path = Path(str(entry["path"]))
        paths = [path] if path.is_file() else path.iterdir()
        assert entry["bytes"] == sum(file.stat().st_size for file in paths), key
    lines = run("models").out.splitlines()
    assert lines[0].split() == ["NAME", "KIND", "SIZE", "WHERE"]
    assert len({line.index("speech") for line in lines if "speech" in line}) == 1
    assert any("converted (q4, encoder q8)" in line for line in lines)


def test_the_list_without_any_cache(run, setting: Setting):
    assert [entry["name"] for entry in listed(run)] == ["tiny-en"]
    assert setting.asked() == 0


def test_a_download_that_ended_early_is_listed(run, setting: Setting):
    run("models", "fetch", NAME, "--threads", "1")
    run("models", "remove", NAME, "--converted", "--yes")
    (snapshot(NAME) / "model.safetensors").unlink()
    assert [(e["name"], e["complete"]) for e in listed(run)] == [(NAME, False), ("tiny-en", True)]
    assert "hub cache, incomplete" in run("models").out


def test_fetch_brings_the_newest(run, setting: Setting, repository: Repository):
    first = run("models", "fetch", NAME, "--threads", "1")
    assert first.code == 0
    again = run("models", "fetch", NAME, "--threads", "1")
    assert "converting" not in again.err
    assert first.err.splitlines()[-1] == again.err.splitlines()[-1]
    repository.files["config.json"] += b"\n"
    assert notes(run(*transcribe("--model", NAME)).err) == []
    newest = run("models", "fetch", NAME, "--threads", "1").err.splitlines()
    assert newest[-1].startswith(f"stapes: {NAME} is ready: {setting.converted}/me--tiny/model.q8")
    assert repository.commit in newest[-1]
    assert len(list(setting.converted.rglob("*.stapes"))) == 1


@pytest.mark.parametrize("only_converted", [True, False])
def test_remove(run, setting: Setting, only_converted: bool):
    for name in (NAME, TEXT_NAME):
        run("models", "fetch", name, "--threads", "1")
    argv = ["--converted"] if only_converted else []
    ran = run("models", "remove", NAME, "--yes", *argv)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith(f"stapes: removed {NAME}, ")
    left = [(entry["name"], entry["where"]) for entry in listed(run)]
    others = [(TEXT_NAME, "hub cache"), (TEXT_NAME, "converted"), ("tiny-en", "bundled")]
    assert sorted(left) == sorted([*others, (NAME, "hub cache")] if only_converted else others)
    assert (snapshot(NAME) is not None) == only_converted
    assert run("models", "remove", NAME, "--yes", "--converted").code == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny-en", "tiny-en is a part of stapes, and stays."),
        ("nonsense", "'nonsense' is no name of the hub"),
        ("no/thing", "nothing of no/thing is there to be removed."),
        ("me/files/a.gguf", "is one file of a repository; me/files can be removed as a whole"),
    ],
)
def test_what_cannot_be_removed(run, setting: Setting, name: str, message: str):
    ran = run("models", "remove", name, "--yes")
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


@pytest.mark.parametrize(("answer", "is_there"), [("y\n", False), ("n\n", True), ("\n", True)])
def test_removing_asks(run, setting: Setting, monkeypatch, answer: str, is_there: bool):
    run("models", "fetch", NAME, "--threads", "1")
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    ran = run("models", "remove", NAME)
    assert (ran.code, "--yes" in ran.err) == (2, True)  # nobody to ask
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    ran = run("models", "remove", NAME)
    assert (ran.code, ran.out) == (0, "")
    assert f"Remove {NAME}, " in ran.err
    assert "(hub cache, converted (q8))? [y/N]: " in ran.err
    assert (snapshot(NAME) is not None) == is_there


@pytest.mark.parametrize("name", ["tiny-en", "nonsense", "a/b/c"])
def test_only_names_of_the_hub_are_fetched(run, setting: Setting, name: str):
    ran = run("models", "fetch", name)
    assert (ran.code, "is no name of the hub" in ran.err) == (2, True)


# -- in processes of their own -------------------------------------------------------------------


def test_the_environment_is_obeyed_and_two_may_start_at_once(tmp_path: Path, folders):
    """HF_ENDPOINT, HF_HOME, STAPES_CACHE; both processes download, convert and answer."""
    with fake_hub() as hub:
        hub.add_folder(NAME, folders[NAME]).token = "secret"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        env = kept | {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "HF_TOKEN": "secret",
            "STAPES_CACHE": str(tmp_path / "cache"),
        }
        argv = [sys.executable, "-m", "stapes", *transcribe("--model", NAME)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started = [subprocess.Popen(argv, env=env, **pipes) for _ in range(2)]
        ended = [(process.communicate(timeout=60), process.returncode) for process in started]
    (out, err), code = ended[0]
    assert (code, len(notes(err))) == (0, 2), err
    assert ended[1][0][0] == out
    assert ended[1][1] == 0, ended[1][0][1]
    assert len(list((tmp_path / "cache").rglob("*.*"))) == 1
    offline = env | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(argv, env=offline, capture_output=True, text=True)
    assert (done.returncode, done.stdout, notes(done.stderr)) == (0, out, [])
