"""A whole tiny model, and recordings for it."""

from __future__ import annotations

from pathlib import Path

import pytest

import stapes
from models.vevo2.tokenizer_checkpoint import melody
from stapes.models.vevo2.pipeline import VoiceModel
from stapes.models.vevo2.reference import Reference
from vevo2_voice import write_voice

#: Options with which a random model of this size takes no time, and writes codes alone.
QUICK = {"seed": 1, "steps": 2, "codes_only": True, "max_new_tokens": 25}


@pytest.fixture(scope="session")
def voice_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole published folder that no test may change."""
    return write_voice(tmp_path_factory.mktemp("whole") / "Vevo2")


@pytest.fixture(scope="session")
def voice_model(voice_root: Path) -> VoiceModel:
    return stapes.load_voice(voice_root, weights="f32", kv="f32", acoustic_weights="f32", threads=1)


def recording(seconds: float = 1.7, seed: int = 0, text: str | None = None) -> Reference:
    """A melody as a reference, sung by nobody."""
    return stapes_reference(melody(seconds, seed=seed), text)


def stapes_reference(samples, text: str | None = None) -> Reference:
    from stapes.models.vevo2.reference import read_reference

    return read_reference(samples, text, 24_000)
