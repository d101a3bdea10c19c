"""What the worker tells of requests, collected for tests; and the recordings that are asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stapes.models.recording import ReadingLimits
from stapes.options import TranscribeOptions
from stapes.server.scheduling import (
    Finished,
    Place,
    TranscriptionTask,
    Update,
    Worker,
    WritingTask,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED: dict[str, str] = json.loads((EXAMPLES / "expected.json").read_text("utf-8"))
LIMITS = ReadingLimits(600, 60)
PATIENCE_S = 60


class Told:
    """Collects what is told of one request; `hold` is called with each update, in the worker."""

    def __init__(self, hold: Callable[[Update], None] | None = None) -> None:
        self.updates: list[Any] = []
        self.finished: Finished | None = None
        self.times_finished = 0
        self._hold = hold
        self._over, self._first = threading.Event(), threading.Event()

    def __call__(self, what: Update | Finished) -> None:
        if isinstance(what, Finished):
            self.finished = what
            self.times_finished += 1
            self._over.set()
            return
        self.updates.append(what.value)
        self._first.set()
        if self._hold:
            self._hold(what)

    def wait_for_first(self) -> None:
        assert self._first.wait(PATIENCE_S)

    def result(self) -> Any:
        """What it gave; raises the error that ended it."""
        assert self._over.wait(PATIENCE_S)
        assert self.finished is not None
        if self.finished.error is not None:
            raise self.finished.error
        return self.finished.value


def transcribe(worker: Worker, model: Any, file: Any, told: Told | None = None, **options: Any):
    """Submit a recording; its place is free again when `Told` has the end."""
    told = told or Told()
    if isinstance(file, (str, Path)):
        file = open(EXAMPLES / file, "rb")  # noqa: SIM115 - the task closes it
    wanted = TranscribeOptions(**options)
    task = TranscriptionTask(told, model, file, wanted, None, LIMITS)
    place = worker.reserve(model.name)
    place.submit(task)
    return told, place


def write(worker: Worker, model: Any, prompt: str, options: Any, **more: Any) -> tuple[Told, Place]:
    told = Told()
    place = worker.reserve(model.name)
    place.submit(WritingTask(told, model, model.encode(prompt), options, **more))
    return told, place
