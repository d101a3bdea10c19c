"""How finely activations are rounded beside q8: 9 bits in speech recognition, 13 elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stapes
from aligner_checkpoints import write_aligner
from checkpoints import Sizes
from models import audio8_checkpoint
from sounds import babble
from stapes.audio import log_mel
from stapes.decoder import Prompt
from stapes.decoder.prompt import check_prompt
from stapes.errors import RequestError
from stapes.models.vevo2.autoregressive.load import load_vevo2
from stapes.options import RuntimeOptions
from text_models import QWEN3, random_tensors, write_folder
from vevo2_models import write_ar

Load = Callable[..., Any]


def speech(folder: Path) -> Load:
    return lambda **bits: stapes.load("tiny-en", weights="q8", threads=1, **bits)


def audio8(folder: Path) -> Load:
    audio8_checkpoint.write_checkpoint(folder)
    return lambda **bits: stapes.load(folder, weights="q8", threads=1, **bits)


def aligner(folder: Path) -> Load:
    model = write_aligner(folder / "model", Sizes())
    return lambda **bits: stapes.load_aligner(model, weights="q8", threads=1, **bits)


def text(folder: Path) -> Load:
    write_folder(folder, QWEN3, random_tensors(QWEN3))
    return lambda **bits: stapes.load_text(folder, weights="q8", threads=1, **bits)


def voice(folder: Path) -> Load:
    write_ar(folder)
    return lambda **bits: load_vevo2(folder, RuntimeOptions("q8", threads=1, **bits))


def logits(model: Any) -> np.ndarray:
    prompt = check_prompt(Prompt([1, 2, 3, 4, 5, 6]), 1, model.decoder.spec)
    return model.decoder.new_session().prefill(prompt, want="logits")


def embeddings(model: Any) -> np.ndarray:
    return model.encoder.encode(log_mel(babble(16_000), 128))


@pytest.mark.parametrize(
    ("make", "taken", "other", "look"),
    [
        (speech, 9, 13, logits),
        (speech, 9, 13, embeddings),
        (audio8, 9, 13, logits),
        (audio8, 9, 13, embeddings),
        (aligner, 9, 13, logits),
        (aligner, 9, 13, embeddings),
        (text, 13, 9, logits),
        (voice, 13, 9, logits),
    ],
)
def test_each_kind_takes_its_own_unless_others_are_asked_for(make, taken, other, look, tmp_path):
    load = make(tmp_path)
    plain = look(load())
    assert np.array_equal(plain, look(load(activation_bits=taken)))
    assert not np.array_equal(plain, look(load(activation_bits=other)))


@pytest.mark.parametrize("bits", [0, 8, 10, -9, 9.0, True, "9"])
def test_other_numbers_are_refused(bits):
    with pytest.raises(RequestError, match=r"activation_bits must be 13 or 9, not "):
        RuntimeOptions(activation_bits=bits)
