"""Models that stream: random ones, and the bundled one."""

from __future__ import annotations

import pytest

import stapes
from models.conftest import cold, load, model, pristine  # noqa: F401  (fixtures)
from stapes.models.qwen3_asr import Qwen3Asr


@pytest.fixture(scope="session")
def tiny_en() -> Qwen3Asr:
    loaded = stapes.load("tiny-en", threads=1)
    assert isinstance(loaded, Qwen3Asr)
    return loaded
