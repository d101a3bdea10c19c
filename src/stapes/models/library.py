"""The models that are on this machine: bundled ones, those of the hub, converted ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stapes.errors import ModelError, RequestError
from stapes.models.converted_cache import ConvertedCache, Kept
from stapes.models.hub import VOICE_FOLDER, HubName, is_complete, snapshot
from stapes.models.registry import (
    ALIGNERS,
    BUNDLED,
    SPEECH,
    TEXT,
    available,
    model_type_in,
    open_source,
)
from stapes.models.vevo2 import published
from stapes.text.json_files import read_json_object

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, HFCacheInfo

Where = Literal["bundled", "hub cache", "converted"]


@dataclass(frozen=True)
class Entry:
    """One model in one place.

    Attributes:
        name: by which it is called.
        kind: what it is for, "speech", "text", "aligner" or "voice".
        where: the place.
        path: a folder or file.
        size_bytes: of it, on disk; of a repository, all of its revisions.
        formats: of a converted file's decoder and encoder.
        is_complete: it is no download that was interrupted.
    """

    name: str
    kind: str
    where: Where
    path: Path
    size_bytes: int
    formats: tuple[str, str] | None = None
    is_complete: bool = True


def entries(cache: ConvertedCache) -> list[Entry]:
    """All models that can be named, in the order of names; other programs' models are left out."""
    found = [*_bundled(), *_downloaded(), *filter(None, map(_converted, cache.files()))]
    return sorted(found, key=lambda entry: (entry.name.lower(), entry.where != "hub cache"))


def remove(repository: str, cache: ConvertedCache, *, keep_download: bool = False) -> None:
    """Remove what was converted of a repository, and what is in the hub's cache.

    Raises:
        RequestError: files cannot be removed.
    """
    cache.remove(repository)
    if keep_download:
        return
    for repo in _repositories():
        if repo.repo_id == repository:
            commits = [revision.commit_hash for revision in repo.revisions]
            _scan().delete_revisions(*commits).execute()
            if any(repo.repo_path.glob("snapshots/*")):
                raise RequestError(f"{repo.repo_path} cannot be removed.")


def _bundled() -> Iterator[Entry]:
    for name in available():
        folder = BUNDLED / name
        size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        yield Entry(name, _kind(folder) or "", "bundled", folder, size)


def _downloaded() -> Iterator[Entry]:
    for repo in _repositories():
        folder = snapshot(repo.repo_id)
        if folder is None:
            continue
        if (folder / VOICE_FOLDER).is_dir():
            complete = published.find(repo.repo_id) is not None
            yield _of_hub(repo, "voice", folder, complete)
            continue
        kind = _kind(folder)
        if kind is not None and (is_complete(folder) or not any(folder.rglob("*.gguf"))):
            yield _of_hub(repo, kind, folder, is_complete(folder))
            continue
        for path in folder.rglob("*.gguf"):
            name = HubName(repo.repo_id, path.relative_to(folder).as_posix())
            if path.is_file():
                yield Entry(str(name), "text", "hub cache", path, path.stat().st_size)


def _of_hub(repo: CachedRepoInfo, kind: str, folder: Path, complete: bool) -> Entry:
    size = repo.size_on_disk
    return Entry(repo.repo_id, kind, "hub cache", folder, size, is_complete=complete)


def _repositories() -> list[CachedRepoInfo]:
    from huggingface_hub.errors import CacheNotFound

    try:
        return [repo for repo in _scan().repos if repo.repo_type == "model"]
    except CacheNotFound:
        return []


def _scan() -> HFCacheInfo:
    from huggingface_hub import constants, scan_cache_dir

    return scan_cache_dir(constants.HF_HUB_CACHE)


def _converted(kept: Kept) -> Entry | None:
    try:
        kind = _kind_of(read_json_object(open_source(kept.path).files / "config.json"))
    except ModelError:  # of another version, or damaged: it is converted anew when it is used
        kind = None
    size = kept.path.stat().st_size
    return Entry(str(kept.name), kind or "unknown", "converted", kept.path, size, kept.formats)


def _kind(folder: Path) -> str | None:
    try:
        return _kind_of(read_json_object(folder / "config.json"))
    except ModelError:
        return None


def _kind_of(config: dict[str, object]) -> str | None:
    model_type = model_type_in(config)
    kinds = {
        **dict.fromkeys(SPEECH, "speech"),
        **dict.fromkeys(TEXT, "text"),
        **dict.fromkeys(ALIGNERS, "aligner"),
    }
    return kinds.get(model_type) if isinstance(model_type, str) else None
