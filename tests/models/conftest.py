"""Loaded tiny models, and folders of which a test may spoil its own copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import stapes
from checkpoints import Sizes, write_checkpoint
from stapes.models.qwen3_asr import Qwen3Asr

SMALL = Sizes(d_model=32, downsample_hidden_size=4, encoder_layers=1, num_hidden_layers=1)


def load(folder: Path, **options: object) -> Qwen3Asr:
    """A model with one thread, exact weights and an exact cache, unless said otherwise."""
    chosen = {"weights": "f32", "kv": "f32", "threads": 1, **options}
    model = stapes.load(folder, **chosen)  # type: ignore[arg-type]
    assert isinstance(model, Qwen3Asr)
    return model


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the -hf layout that no test may change."""
    return write_checkpoint(tmp_path_factory.mktemp("pristine"), SMALL)


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """A copy for one test."""
    return shutil.copytree(pristine, tmp_path / "model")


@pytest.fixture(scope="session")
def model(pristine: Path) -> Qwen3Asr:
    return load(pristine)


@pytest.fixture
def cold(pristine: Path) -> Callable[[], Qwen3Asr]:
    """Loads the same model anew."""
    return lambda: load(pristine)
