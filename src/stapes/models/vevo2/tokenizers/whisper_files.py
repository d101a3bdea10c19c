"""Finds and opens a Whisper encoder, in Hugging Face's layout or OpenAI's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stapes.errors import ConfigError, TensorFileError
from stapes.models.config_reader import ConfigReader
from stapes.models.vevo2.tokenizers.whisper_config import (
    WhisperNames,
    WhisperSpec,
    names_in,
    spec_from_config,
    spec_from_dims,
)
from stapes.models.vevo2.tokenizers.whisper_weights import expected_tensors
from stapes.tensors import TensorStore, check_tensors, open_safetensors
from stapes.tensors.torch_file import TorchFile
from stapes.text.json_files import read_json_object

_CONFIG = "config.json"


@dataclass(frozen=True, eq=False)
class WhisperFile:
    """An open checkpoint, whose encoder has every tensor in its shape."""

    spec: WhisperSpec
    names: WhisperNames
    store: TensorStore | TorchFile


@contextmanager
def open_whisper(path: Path) -> Iterator[WhisperFile]:
    """Open a checkpoint for as long as a `with` block lasts.

    Args:
        path: a folder with config.json and model.safetensors (openai/whisper-medium, or OpenAI's
            tensors with their dimensions under `audio_encoder`), a folder with one .pt file, or
            such a file (OpenAI's medium.pt).

    Raises:
        TensorFileError, ConfigError, CheckpointError: missing, damaged, or no Whisper encoder.
    """
    pickled = _torch_file(path)
    if pickled is not None:
        with TorchFile(pickled) as file:
            yield _checked(path, file, _dims_spec(file))
        return
    folder = path if path.is_dir() else path.parent
    values = read_json_object(folder / _CONFIG)
    spec = spec_from_config(ConfigReader(values, str(folder / _CONFIG)))
    with open_safetensors(path) as store:
        yield _checked(path, store, spec)


def _torch_file(path: Path) -> Path | None:
    """The .pt file, where the path is one or a folder with one and no config.json."""
    if not path.exists():
        raise TensorFileError(
            f"{path} does not exist; Vevo2's weights come without Whisper, which is published as"
            " openai/whisper-medium."
        )
    if path.is_file():
        return path if path.suffix == ".pt" else None
    found = sorted(path.glob("*.pt"))
    return found[0] if len(found) == 1 and not (path / _CONFIG).exists() else None


def _dims_spec(file: TorchFile) -> WhisperSpec:
    dims = file.root.get("dims") if isinstance(file.root, dict) else None
    if not isinstance(dims, dict):
        raise ConfigError(f"{file.path} has no dimensions (dims), as OpenAI's Whisper files have.")
    return spec_from_dims(ConfigReader(dims, f"{file.path}'s dims"))


def _checked(path: Path, store: TensorStore | TorchFile, spec: WhisperSpec) -> WhisperFile:
    names = names_in(store, str(path))
    check_tensors(store, expected_tensors(spec, names), ignored=_outside(names.prefix))
    return WhisperFile(spec, names, store)


def _outside(prefix: str) -> Callable[[str], bool]:
    """Tells which tensors are none of the encoder's."""
    return lambda name: not name.startswith(prefix)
