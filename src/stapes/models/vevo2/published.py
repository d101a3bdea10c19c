"""Vevo2 by its name on the Hugging Face hub: the parts that are needed, and Whisper medium."""

from __future__ import annotations

from pathlib import Path

from stapes.errors import ModelError
from stapes.models.hub import fetch_files, snapshot
from stapes.models.vevo2.layout import AR_FOLDER, AR_VARIANTS, PARTS, Vevo2Layout

WHISPER = "openai/whisper-medium"
_WHISPER_FILES = ("config.json", "model.safetensors")
# Beside the weights of the autoregressive stage; what training left there is not fetched.
_AR_FILES = (
    *("config.json", "generation_config.json", "amphion_config.json", "model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"),
    *("added_tokens.json", "special_tokens_map.json"),
)
_WANTED = {
    *(f"{AR_FOLDER}/{AR_VARIANTS[0]}/{file}" for file in _AR_FILES),
    *(f"{part.folder}/{file}" for part in PARTS.values() for file in part.files),
}


def find(repository: str) -> Path | None:
    """The folder of a model that has been downloaded whole; asks no server."""
    folder = snapshot(repository)
    if folder is None or _lacks(folder) or whisper() is None:
        return None
    return folder


def fetch(repository: str) -> Path:
    """Download a model, and Whisper medium, or what is missing of them.

    Raises:
        ModelError: it cannot be fetched, or is no Vevo2. CapacityError: the disk is full.
    """
    folder = fetch_files(repository, _WANTED.__contains__)
    lacking = _lacks(folder)
    if lacking:
        raise ModelError(f"{repository} is no Vevo2 model: it lacks {', '.join(lacking)}.")
    if whisper() is None:
        fetch_files(WHISPER, _WHISPER_FILES.__contains__)
    return folder


def whisper() -> Path | None:
    """The folder of Whisper medium in the hub's cache, if it has been downloaded whole."""
    folder = snapshot(WHISPER)
    if folder is None or not all((folder / file).is_file() for file in _WHISPER_FILES):
        return None
    return folder


def whisper_of(layout: Vevo2Layout) -> Path:
    """Whisper medium inside a model's folder, beside it, or in the hub's cache.

    ModelError when it is in none of them.
    """
    try:
        return layout.whisper()
    except ModelError as error:
        found = whisper()
        if found is None:
            told = str(error).removesuffix(".")
            raise ModelError(f"{told}; {WHISPER} of the hub is one.") from error
        return found


def _lacks(folder: Path) -> list[str]:
    """What of a downloaded model is not there, of what it cannot do without."""
    ar = f"{AR_FOLDER}/{AR_VARIANTS[0]}"
    parts = [f"{part.folder}/{file}" for part in PARTS.values() for file in part.files]
    needed = [f"{ar}/config.json", f"{ar}/model.safetensors", *parts]
    return [file for file in needed if not (folder / file).is_file()]
