"""Loaded models: the bundled one, for right words, and a tiny random text model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import openai
import pytest

import stapes
from server.serving import Running, client_of, serving
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.models.qwen_text import TextModel
from stapes.server.scheduling import Lane, Worker
from stapes.server.served import Served
from text_models import QWEN3, TEMPLATE, random_tensors, write_folder


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
    model.name, model.chat_template = "tiny-text", TEMPLATE
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


@pytest.fixture(scope="module")
def server(speech: Qwen3Asr, text: TextModel) -> Iterator[Running]:
    """A server with both models, shared by the tests of a file."""
    with serving(Served({speech.name: speech}, {text.name: text})) as running:
        yield running


@pytest.fixture
def openai_client(server: Running) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client
