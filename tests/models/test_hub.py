"""Models of the hub: what is downloaded, what is refused, and what is found again."""

from __future__ import annotations

import errno
import importlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import stapes
from checkpoints import random_tensors, write_checkpoint, write_shards
from fake_hub import Repository
from models.conftest import SMALL
from models.hub_setting import Setting, hub_setting
from sounds import babble
from stapes.errors import CapacityError, ConfigError, ModelError, RequestError
from stapes.models import converted_cache, hub, registry
from stapes.models.converted_cache import ConvertedCache
from stapes.models.hub import HubName, parse_name
from stapes.options import RuntimeOptions
from text_models import QWEN2, write_gguf
from text_models import random_tensors as text_tensors

NAME = "me/tiny"
ONE_THREAD = RuntimeOptions(threads=1)
GENTLE = ["config.json", "model.safetensors", "tokenizer.json"]


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    monkeypatch.chdir(tmp_path)
    with hub_setting(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture
def repository(setting: Setting, pristine: Path) -> Repository:
    """`me/tiny`, with files beside it that no model needs."""
    repository = setting.hub.add_folder(NAME, pristine)
    repository.files |= {
        "README.md": b"#",
        "pytorch_model.bin": b"x" * 1000,
        "onnx/config.json": b"{}",
        "other.safetensors": b"x",
        "training_args.json": b"{}",
    }
    return repository


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Qwen/Qwen3-ASR-0.6B", HubName("Qwen/Qwen3-ASR-0.6B")),
        ("a/b/c.gguf", HubName("a/b", "c.gguf")),
        ("a/b/c d/e-f.gguf", HubName("a/b", "c d/e-f.gguf")),
    ],
)
def test_names_of_the_hub(text: str, expected: HubName):
    assert parse_name(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a/b/c", "/a/b", "./a/b", "../b", "a/../b.gguf", "a/b/../c.gguf", "a/b/c.GGUF"),
        *("models/x.gguf", "models/x.stapes", "a--b/c", "größe/x", "a/b\0", "a\\b", "C:/b"),
    ],
)
def test_what_is_no_name_of_the_hub(text: str):
    assert parse_name(text) is None


def test_a_folder_goes_before_the_hub(setting: Setting, repository: Repository):
    folder = write_checkpoint(Path("me/tiny"), SMALL)
    assert registry.find_model(NAME) == folder
    assert registry.hub_name(NAME) is None
    assert setting.asked() == 0


# -- downloads -----------------------------------------------------------------------------------


def test_only_what_a_model_needs_is_downloaded(
    setting: Setting, repository: Repository, pristine: Path
):
    folder = registry.find_model(NAME)
    assert names(folder) == names(pristine) == GENTLE
    assert all((folder / name).read_bytes() == repository.files[name] for name in GENTLE)
    assert hub.commit_of(folder) == repository.commit


def test_what_is_there_is_used_without_a_request(setting: Setting, repository: Repository):
    folder = registry.find_model(NAME)
    before = setting.asked()
    assert registry.find_model(NAME) == folder
    setting.offline()
    assert registry.find_model(NAME) == folder
    assert setting.asked() == before > 0


def test_a_model_of_the_hub_transcribes_like_its_folder(repository: Repository, pristine: Path):
    models = [stapes.load(model, threads=1) for model in (NAME, pristine)]
    ours, theirs = (
        model.transcribe(babble(16_000), sample_rate=16_000, vad=False) for model in models
    )
    assert ours.token_ids == theirs.token_ids
    assert ours.model == NAME


@pytest.mark.parametrize("layout", ["hf", "original"])
def test_shards_and_both_tokenizers(setting: Setting, tmp_path: Path, layout):
    folder = write_checkpoint(tmp_path / "m", SMALL, layout=layout)
    if layout == "hf":
        (folder / "model.safetensors").unlink()
        write_shards(folder, random_tensors(SMALL), 3)
    setting.hub.add_folder(NAME, folder)
    assert names(registry.find_model(NAME)) == names(folder)
    setting.hub.requests.clear()
    (hub.find(HubName(NAME)) / "config.json").unlink()
    registry.find_model(NAME)
    assert setting.hub.asked_for(".safetensors") == []


def test_a_broken_connection_is_resumed(setting: Setting, repository: Repository):
    constants = importlib.import_module("huggingface_hub.constants")
    setting.patch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    file_download = importlib.import_module("huggingface_hub.file_download")
    setting.patch.setattr(file_download.time, "sleep", lambda seconds: None)
    weights = repository.files["model.safetensors"]
    setting.hub.cut_after = len(weights) // 2
    folder = registry.find_model(NAME)
    assert (folder / "model.safetensors").read_bytes() == weights
    ranges = [sent for method, path, sent in setting.hub.requests if path.startswith("/large")]
    assert ranges[0] == ""
    start = int(ranges[1].removeprefix("bytes=").rstrip("-"))
    assert 0 < start <= len(weights) // 2


def test_a_download_that_ended_early_is_completed(setting: Setting, repository: Repository):
    weights = repository.files.pop("model.safetensors")
    repository.files["model.safetensors.index.json"] = b'{"weight_map": {"x": "absent"}}'
    with pytest.raises(ModelError, match=r"me/tiny lacks .* weights that its index names"):
        registry.find_model(NAME)
    assert hub.find(HubName(NAME)) is None
    del repository.files["model.safetensors.index.json"]
    repository.files["model.safetensors"] = weights
    assert names(registry.find_model(NAME)) == GENTLE


def test_the_kind_is_checked_before_the_weights(setting: Setting, repository: Repository):
    repository.files["config.json"] = b'{"model_type": "whisper"}'
    with pytest.raises(ConfigError, match="model_type 'whisper'"):
        registry.find_model(NAME)
    assert setting.hub.asked_for(".safetensors") == []


def test_a_private_repository(setting: Setting, repository: Repository):
    repository.token = "secret"
    with pytest.raises(ModelError, match=r"no such repository, or a private one that needs HF_TOK"):
        registry.find_model(NAME)
    setting.patch.setenv("HF_TOKEN", "secret")
    assert names(registry.find_model(NAME)) == GENTLE


# -- GGUF ----------------------------------------------------------------------------------------


@pytest.fixture
def gguf(setting: Setting, tmp_path: Path) -> Repository:
    write_gguf(tmp_path / "x.gguf", QWEN2, text_tensors(QWEN2))
    data = (tmp_path / "x.gguf").read_bytes()
    files = {"README.md": b"#", "config.json": b"{}", "deep/tiny[q8].gguf": data}
    setting.hub.repositories["me/gguf"] = Repository(files)
    return setting.hub.repositories["me/gguf"]


@pytest.mark.parametrize("name", ["me/gguf", "me/gguf/deep/tiny[q8].gguf"])
def test_a_gguf_file(setting: Setting, gguf: Repository, name: str):
    file = registry.find_model(name)
    assert (file.name, file.parent.name) == ("tiny[q8].gguf", "deep")
    assert hub.commit_of(file) == gguf.commit
    before = setting.asked()
    assert registry.find_model(name) == file
    assert setting.asked() == before
    assert stapes.load_text(name, threads=1).generate("the fox", max_new_tokens=3).token_ids


def test_one_of_several_gguf_files_has_to_be_named(setting: Setting, gguf: Repository):
    gguf.files["b.gguf"] = gguf.files["deep/tiny[q8].gguf"]
    listed = r"2 models, name one: me/gguf/b\.gguf, me/gguf/deep/tiny\[q8\]\.gguf\."
    with pytest.raises(ModelError, match=listed):
        registry.find_model("me/gguf")
    with pytest.raises(ModelError, match=r"has no file a\.gguf; it has: me/gguf/b\.gguf, me"):
        registry.find_model("me/gguf/a.gguf")
    assert registry.find_model("me/gguf/b.gguf").name == "b.gguf"
    assert setting.hub.asked_for("b.gguf")
    assert not setting.hub.asked_for("tiny[q8].gguf")


def test_a_repository_without_a_model(setting: Setting, gguf: Repository):
    gguf.files = {"README.md": b"#", "pytorch_model.bin": b"x"}
    with pytest.raises(ModelError, match=r"me/gguf holds no model that can be used: neither"):
        registry.find_model("me/gguf")


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ((401, "", "Invalid credentials in Authorization header"), "not accept the token"),
        ((401, "GatedRepo", "gated"), "agreed to its terms there; then set HF_TOKEN"),
        ((403, "GatedRepo", "gated"), "agreed to its terms there; then set HF_TOKEN"),
        ((403, "", "no"), r"refuses access \(status 403\); HF_TOKEN has to be"),
        ((404, "RepoNotFound", "no"), "no such repository, or a private one that needs HF_TOKEN"),
        ((404, "RevisionNotFound", "no"), "answers with status 404"),
        ((418, "", "no"), "answers with status 418"),
    ],
)
def test_refusals_are_a_sentence_each(setting, repository: Repository, error, sentence: str):
    repository.error = error
    with pytest.raises(ModelError, match=sentence) as refused:
        registry.find_model(NAME)
    said = str(refused.value)
    assert said.startswith("'me/tiny' is no folder, and could not be fetched: ")
    assert setting.hub.url in said
    assert said.count("\n") == 0
    assert said.endswith(".")


def test_offline(setting: Setting, repository: Repository):
    setting.offline()
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE forbids to download it"):
        registry.find_model(NAME)
    assert setting.asked() == 0


def test_no_network(setting: Setting):
    constants = importlib.import_module("huggingface_hub.constants")
    setting.patch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=r"http://127\.0\.0\.1:9 cannot be reached \("):
        registry.find_model(NAME)


def test_a_name_that_the_hub_cannot_have(setting: Setting):
    with pytest.raises(ModelError, match="no repositories of such names"):
        registry.find_model("a-.b/-c")
    assert setting.asked() == 0


def test_a_full_disk_of_the_hubs_cache(setting: Setting, repository: Repository):
    client = importlib.import_module("huggingface_hub")
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail(*args: object, **options: object) -> str:
        raise full

    setting.patch.setattr(client, "snapshot_download", fail)
    with pytest.raises(CapacityError, match="me/tiny could not be fetched: the disk"):
        registry.find_model(NAME)


# -- converted files -----------------------------------------------------------------------------


@pytest.fixture
def cache(setting: Setting) -> ConvertedCache:
    return ConvertedCache(setting.converted)


def keep(cache: ConvertedCache, options: RuntimeOptions = ONE_THREAD, name: str = NAME) -> Path:
    found = parse_name(name)
    assert found is not None
    return cache.keep(found, hub.find(found) or hub.fetch(found), options)


def test_a_file_for_each_choice_of_formats(repository: Repository, cache: ConvertedCache):
    choices = [
        RuntimeOptions(threads=1),
        RuntimeOptions("q4", threads=1),
        RuntimeOptions("q4", threads=1, encoder_weights="bf16"),
    ]
    assert [cache.find(HubName(NAME), options) for options in choices] == [None] * 3
    files = [keep(cache, options) for options in choices]
    assert len(set(files)) == 3
    assert [cache.find(HubName(NAME), options) for options in choices] == files
    same = RuntimeOptions("q4", threads=2, encoder_weights="q8", kv="f32")
    assert cache.find(HubName(NAME), same) == files[1]
    kept = [(str(k.name), k.formats, k.commit, k.version) for k in cache.files()]
    formats = [("q4", "bf16"), ("q4", "q8"), ("q8", "q8")]
    assert kept == [(NAME, pair, repository.commit, "1") for pair in formats]
    assert stapes.load(files[0], threads=1)


def test_a_gguf_file_that_is_kept(gguf: Repository, cache: ConvertedCache):
    name = "me/gguf/deep/tiny[q8].gguf"
    file = keep(cache, name=name)
    assert cache.find(HubName("me/gguf", "deep/tiny[q8].gguf"), ONE_THREAD) == file
    assert cache.find(HubName("me/gguf"), ONE_THREAD) is None
    assert [str(kept.name) for kept in cache.files()] == [name]


def test_gguf_files_of_awkward_names(gguf: Repository, cache: ConvertedCache):
    data = gguf.files["deep/tiny[q8].gguf"]
    files = ["a/b.gguf", "a--b.gguf", "a%2Fb.gguf", "model.q8-q8.1.gguf"]
    gguf.files = dict.fromkeys(files, data)
    kept = [keep(cache, name=f"me/gguf/{file}") for file in files]
    assert len(set(kept)) == len(files)
    assert [cache.find(HubName("me/gguf", file), ONE_THREAD) for file in files] == kept


def test_a_new_revision_takes_the_place_of_the_old_one(
    setting: Setting, repository: Repository, cache: ConvertedCache
):
    old, other = keep(cache), keep(cache, RuntimeOptions("q4", threads=1))
    repository.files["config.json"] += b"\n"
    assert cache.find(HubName(NAME), ONE_THREAD) == old  # until it is asked for
    hub.fetch(HubName(NAME))
    assert cache.find(HubName(NAME), ONE_THREAD) is None
    new = keep(cache)
    assert cache.find(HubName(NAME), ONE_THREAD) == new
    assert (old.exists(), other.exists()) == (False, True)


def test_the_original_may_be_deleted(setting, repository: Repository, cache: ConvertedCache):
    file = keep(cache)
    setting.cache.rename(setting.cache.with_name("away"))
    before = setting.asked()
    assert cache.find(HubName(NAME), ONE_THREAD) == file
    assert setting.asked() == before


def test_a_damaged_file_is_made_anew(repository: Repository, cache: ConvertedCache):
    file = keep(cache)
    file.write_bytes(file.read_bytes()[:1000])
    assert cache.find(HubName(NAME), ONE_THREAD) is None
    assert not file.exists()
    assert keep(cache) == file


def test_another_version_of_the_layout(setting, repository, cache: ConvertedCache):
    old = keep(cache)
    setting.patch.setattr(converted_cache, "VERSION", "2")
    assert cache.find(HubName(NAME), ONE_THREAD) is None
    assert ".2." in keep(cache).name
    assert not old.exists()


def test_two_at_a_time(setting: Setting, repository: Repository, cache: ConvertedCache):
    """Both wait in front of the rename until the other one is there."""
    atomic = importlib.import_module("stapes.weights.atomic")
    barrier, replaced = threading.Barrier(2, timeout=30), atomic.os.replace

    def replace(*paths: object) -> None:
        barrier.wait()
        replaced(*paths)

    original = hub.fetch(HubName(NAME))
    setting.patch.setattr(atomic.os, "replace", replace)
    found: list[Path] = []

    def work() -> None:
        found.append(cache.keep(HubName(NAME), original, ONE_THREAD))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [cache.find(HubName(NAME), ONE_THREAD)] * 2
    assert names(setting.converted) == [f"me--tiny/{found[0].name}"]
    assert stapes.load(found[0], threads=1)


def test_a_cache_that_cannot_be_written(setting, repository, cache: ConvertedCache):
    setting.converted.parent.mkdir()
    setting.converted.write_bytes(b"a file")
    with pytest.raises(RequestError, match="cannot be made"):
        keep(cache)


def test_foreign_files_are_left_alone(cache: ConvertedCache, repository: Repository):
    file = keep(cache)
    for foreign in ("x.stapes", "me--tiny/x.stapes", "a--b--c/x.q8-q8.1.0.stapes", "me--tiny/x"):
        path = cache.folder / foreign
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert [kept.path for kept in cache.files()] == [file]
