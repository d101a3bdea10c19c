"""Finding models: bundled ones by name, folders, and repositories of the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from stapes.errors import CapacityError, ConfigError, ModelError
from stapes.options import KvFormat, RuntimeOptions, WeightFormat
from stapes.text.json_files import read_json_object

if TYPE_CHECKING:
    from stapes.graph import NoTracer
    from stapes.models.interface import SpeechModel

BUNDLED = Path(__file__).parent / "bundled"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def available() -> tuple[str, ...]:
    """Names of the bundled models."""
    if not BUNDLED.is_dir():
        return ()
    return tuple(sorted(path.name for path in BUNDLED.iterdir() if (path / "config.json").exists()))


def load(
    model: str | Path,
    *,
    weights: WeightFormat,
    kv: KvFormat,
    threads: int | None,
    tracer: NoTracer | None = None,
) -> SpeechModel:
    """See `stapes.load`."""
    options = RuntimeOptions(weights, kv, threads)
    folder = find_folder(model)
    model_type = read_json_object(folder / "config.json").get("model_type")
    if model_type != "qwen3_asr":
        raise ConfigError(
            f"{folder / 'config.json'} says model_type {model_type!r}; supported is 'qwen3_asr'."
        )
    from stapes.graph import NO_TRACE
    from stapes.models.qwen3_asr import load_qwen3_asr

    try:
        return load_qwen3_asr(folder, str(model), options, tracer or NO_TRACE)
    except MemoryError:
        raise CapacityError(
            f"{model} does not fit into memory as {weights} weights; q8 takes the least."
        ) from None


def find_folder(model: str | Path) -> Path:
    """The folder that a model's name or path stands for.

    Raises:
        ModelError: there is no such model; the message lists the bundled ones.
    """
    if str(model) in available():
        return BUNDLED / str(model)
    path = Path(model)
    if str(model) and path.is_dir():
        return path
    if str(model) and path.exists():
        raise ModelError(f"{path} is a file; a model is a folder with config.json and weights.")
    if isinstance(model, str) and _HUB_NAME.fullmatch(model):
        return _fetch(model)
    known = ", ".join(available()) or "none"
    raise ModelError(f"There is no model {str(model)!r}: no such folder, and bundled are: {known}.")


def _fetch(name: str) -> Path:
    """Download a repository of the hub, or find it in the local cache."""
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.txt"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # the hub's client raises many kinds, network errors among them
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{name!r} is no folder, and could not be fetched: {reason}") from error
