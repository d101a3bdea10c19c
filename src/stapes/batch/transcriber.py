"""A worker's inside, the same in a process and in an actor of a cluster: one model, many tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import stapes
from stapes.batch.task import Message, Outcome, Ready, Task, kind_of
from stapes.errors import CapacityError, StapesError
from stapes.options import RuntimeOptions
from stapes.output.jsonl import to_object

if TYPE_CHECKING:
    from stapes.models.interface import SpeechModel


@dataclass(frozen=True)
class ModelLoader:
    """Loads a model where the worker is.

    Attributes:
        model: what `stapes.load` takes.
        name: what the results call it.
    """

    model: str
    name: str
    options: RuntimeOptions

    def __call__(self) -> SpeechModel:
        """Load it."""
        return stapes.load(self.model, **vars(self.options))


Load = Callable[[], "SpeechModel"]


class Transcriber:
    """Loads a model once, then transcribes recordings one by one, whatever is wrong with them."""

    def __init__(self, load: Load, should_cancel: Callable[[], bool] | None = None) -> None:
        self._load = load
        self._name = load.name if isinstance(load, ModelLoader) else None
        self._should_cancel = should_cancel
        self._model: SpeechModel | None = None

    def load(self) -> Message:
        """Ready, or the error that tells why the model cannot be used here."""
        try:
            self._model = self._load()
        except StapesError as error:
            return error
        except MemoryError:
            return CapacityError("The model does not fit into the memory that workers have.")
        return Ready()

    def transcribe(self, task: Task) -> Outcome:
        """What became of one recording; its errors, foreseen or not, are outcomes as well."""
        try:
            return self._transcribed(task)
        except Exception as error:
            kind = kind_of(error)
            foreseen = isinstance(error, StapesError)
            sentence = str(error) if foreseen else f"{type(error).__name__}: {error}"
            return Outcome.failed(task, sentence, kind)

    def _transcribed(self, task: Task) -> Outcome:
        assert self._model is not None
        transcript = self._model.transcribe(
            task.path,
            **vars(task.options),
            should_cancel=self._should_cancel,
        )
        named = replace(transcript, model=self._name or transcript.model)
        return Outcome(task, to_object(task.path, named), audio_s=transcript.duration_s)
