"""Loaded models: the bundled one, for right words, and a tiny random text model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import stapes
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.models.qwen_text import TextModel
from stapes.server.scheduling import Lane, Worker
from text_models import QWEN3, random_tensors, write_folder


@pytest.fixture(scope="session")
def speech() -> Qwen3Asr:
    model = stapes.load(threads=2)
    assert isinstance(model, Qwen3Asr)
    return model


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    folder = tmp_path_factory.mktemp("text") / "tiny-text"
    write_folder(folder, QWEN3, random_tensors(QWEN3))
    model = stapes.load_text(folder, threads=1)
    model.name = "tiny-text"
    return model


@pytest.fixture
def make_worker(speech: Qwen3Asr, text: TextModel) -> Iterator[Callable[..., Worker]]:
    """Starts workers for both models, and stops them after the test."""
    started: list[Worker] = []

    def make(slots: int = 8, max_queue: int = 32, **options: int) -> Worker:
        lanes = [Lane(model.name, model.decoder, slots) for model in (speech, text)]
        worker = Worker(lanes, max_queue, **options)
        worker.start()
        started.append(worker)
        return worker

    yield make
    for worker in started:
        worker.stop()
