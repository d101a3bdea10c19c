"""Repositories of the Hugging Face hub: what a model needs of them, in the hub's own cache.

Its client reads its own environment: HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE and the like.
"""

from __future__ import annotations

import errno
import glob
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from stapes.errors import CapacityError, ModelError, StapesError
from stapes.models.converted import KEPT_FILES
from stapes.tensors.safetensors import INDEX_FILE, SINGLE_FILE

_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[\w.-]+)(?:/([^\0\\]+\.gguf))?", re.ASCII)
_FILES = (".gguf", ".safetensors", ".stapes")

_TOKENIZERS = (("tokenizer.json",), ("vocab.json", "merges.txt"))
_BESIDE = ("added_tokens.json", "special_tokens_map.json")
# Everything but the weights: small, and fetched first.
_SMALL_FILES = {*KEPT_FILES, *_BESIDE, INDEX_FILE, *(n for names in _TOKENIZERS for n in names)}

#: Which repositories of Vevo2 have: they hold several networks, and no checkpoint at their root.
VOICE_FOLDER = "contentstyle_modeling"

_UNAUTHORIZED, _FORBIDDEN = 401, 403


@dataclass(frozen=True)
class HubName:
    """A model of the hub.

    Attributes:
        repository: OWNER/NAME.
        file: of a GGUF file, its path inside the repository; None takes what there is.
    """

    repository: str
    file: str | None = None

    def __str__(self) -> str:
        return self.repository if self.file is None else f"{self.repository}/{self.file}"


def parse_name(text: str) -> HubName | None:
    """OWNER/NAME, or OWNER/NAME/FILE.gguf; None of anything else, a path for instance."""
    found = _NAME.fullmatch(text)
    if found is None or found[1].endswith(_FILES) or ".." in text or "--" in found[1]:
        return None
    return HubName(found[1], found[2])


def find(name: HubName) -> Path | None:
    """The folder or GGUF file of a model that has been downloaded whole; asks no server.

    Of a repository that holds no checkpoint it is the one GGUF file that is there.
    """
    folder = snapshot(name.repository)
    if folder is None:
        return None
    if name.file is not None:
        file = folder / name.file
        return file if file.is_file() else None
    if is_complete(folder):
        return folder
    files = [path for path in folder.rglob("*.gguf") if path.is_file()]
    return files[0] if len(files) == 1 else None


def snapshot(repository: str) -> Path | None:
    """The folder of a repository's newest revision that is in the cache, whatever it holds."""
    # By the cache's published layout: importing the client takes longer than loading a model.
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"
    try:
        commit = (folder / "refs" / constants.DEFAULT_REVISION).read_text("utf-8").strip()
    except (OSError, ValueError):
        return None
    found = folder / "snapshots" / commit
    return found if commit and found.is_dir() else None


def commit_of(path: Path) -> str:
    """The revision to which a folder or file of the hub's cache belongs."""
    parts = path.parts
    return parts[len(parts) - parts[::-1].index("snapshots")]


def is_complete(folder: Path) -> bool:
    """Whether a folder holds a checkpoint that can be loaded."""
    tokenizer = any(all((folder / n).is_file() for n in names) for names in _TOKENIZERS)
    needed = ["config.json", *_weight_files(folder)]
    return tokenizer and all((folder / name).is_file() for name in needed)


def fetch(name: HubName, check: Callable[[Path], object] | None = None) -> Path:
    """Download the newest revision of a model, or what is missing of it.

    A connection that breaks is resumed, and files that are there whole are not fetched again.
    Without a network, or where HF_HUB_OFFLINE forbids to use it, this fails: see `find`.

    Args:
        name: the model.
        check: is given a folder with config.json before weights are downloaded; refuses by raising.

    Returns:
        The folder with the checkpoint, or the GGUF file, in the hub's cache.

    Raises:
        ModelError: it cannot be fetched, holds no model, or several GGUF files to choose from.
        CapacityError: the disk is full.
    """
    try:
        return _fetch(name, check)
    except (StapesError, MemoryError):
        raise
    except Exception as error:  # the hub's client raises many kinds, those of its libraries too
        raise _translated(name, error) from error


def fetch_files(repository: str, wanted: Callable[[str], bool]) -> Path:
    """Download some files of a repository's newest revision, or what is missing of them.

    Returns:
        The folder of the revision in the hub's cache.

    Raises:
        ModelError: it cannot be fetched. CapacityError: the disk is full.
    """
    try:
        from huggingface_hub import HfApi

        files = [file.rfilename for file in HfApi().model_info(repository).siblings or ()]
        return _download(repository, [file for file in files if wanted(file)])
    except (StapesError, MemoryError):
        raise
    except Exception as error:  # as in `fetch`
        raise _translated(HubName(repository), error) from error


def _fetch(name: HubName, check: Callable[[Path], object] | None) -> Path:
    from huggingface_hub import HfApi

    repository = name.repository
    # Of all requests for a list the one that does not try again for half a minute.
    files = [file.rfilename for file in HfApi().model_info(repository).siblings or ()]
    if name.file is None and "config.json" in files and {INDEX_FILE, SINGLE_FILE} & {*files}:
        folder = _download(repository, [file for file in files if file in _SMALL_FILES])
        if check is not None:
            check(folder)
        folder = _download(repository, _weight_files(folder))
        if not is_complete(folder):
            raise ModelError(f"{repository} lacks a tokenizer, or weights that its index names.")
        return folder
    if any(file.startswith(f"{VOICE_FOLDER}/") for file in files):
        raise ModelError(
            f"{repository} is a voice model, which the first `stapes speak` of it downloads."
        )
    file = _chosen(name, [file for file in files if file.endswith(".gguf")])
    return _download(repository, [file]) / file


def _chosen(name: HubName, gguf_files: Sequence[str]) -> str:
    """The GGUF file that a name means."""
    if name.file in gguf_files:
        return str(name.file)
    listed = ", ".join(f"{name.repository}/{file}" for file in sorted(gguf_files))
    if name.file is not None:
        raise ModelError(f"{name.repository} has no file {name.file}; it has: {listed or 'none'}.")
    if not gguf_files:
        raise ModelError(
            f"{name.repository} holds no model that can be used: neither config.json with "
            f"{SINGLE_FILE} or {INDEX_FILE}, nor a GGUF file."
        )
    if len(gguf_files) > 1:
        raise ModelError(f"{name.repository} holds {len(gguf_files)} models, name one: {listed}.")
    return gguf_files[0]


def _weight_files(folder: Path) -> list[str]:
    """Names of a checkpoint's files of weights; of an index that is wrong, itself alone."""
    try:
        named = json.loads((folder / INDEX_FILE).read_text("utf-8"))["weight_map"].values()
        return sorted({str(file) for file in named})
    except OSError:
        return [SINGLE_FILE]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [INDEX_FILE]  # loading tells what is wrong with it


def _download(repository: str, files: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download

    patterns = [glob.escape(file) for file in files]
    return Path(snapshot_download(repository, allow_patterns=patterns, tqdm_class=_terminal_bar()))


def _terminal_bar() -> Any:
    """The progress bar of the hub's client, but on a terminal only."""
    bar: Any = import_module("huggingface_hub.utils").tqdm

    class TerminalBar(bar):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            options.setdefault("disable", None)  # None: unless it is a terminal
            super().__init__(*args, **options)

    return TerminalBar


# -- errors --------------------------------------------------------------------------------------


def _translated(name: HubName, error: Exception) -> StapesError:
    """One sentence of ours for whatever the hub's client raised."""
    full = (errno.ENOSPC, errno.EDQUOT)
    if any(isinstance(cause, OSError) and cause.errno in full for cause in _causes(error)):
        return CapacityError(f"{name} could not be fetched: the disk of the hub's cache is full.")
    reason = next(filter(None, map(_reason, _causes(error))), None) or _first_line(error)
    return ModelError(f"{str(name)!r} is no folder, and could not be fetched: {reason}.")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(error: BaseException) -> str | None:
    """Why a request failed; None where another error of the chain may know."""
    from huggingface_hub import constants, errors

    endpoint = constants.ENDPOINT
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "it is not in the hub's cache, and HF_HUB_OFFLINE forbids to download it"
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{endpoint} shows it only to those who have agreed to its terms there; then set "
            "HF_TOKEN to a token of that account"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{endpoint} has no such repository, or a private one that needs HF_TOKEN set to a "
            "token that may read it"
        )
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        return _status_reason(error.response.status_code, endpoint)
    if isinstance(error, errors.HFValidationError):
        return "the hub has no repositories of such names"
    # Of httpx or requests, by its version; both name their kinds alike.
    if re.search("Connect|Timeout|Network|Proxy|Protocol|ReadError", type(error).__name__):
        return f"{endpoint} cannot be reached ({_first_line(error)})"
    return None


def _status_reason(status: int, endpoint: str) -> str:
    if status == _UNAUTHORIZED:
        return f"{endpoint} does not accept the token (status 401); HF_TOKEN sets another"
    if status == _FORBIDDEN:
        return (
            f"{endpoint} refuses access (status 403); HF_TOKEN has to be a token that may read it"
        )
    return f"{endpoint} answers with status {status}"


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
