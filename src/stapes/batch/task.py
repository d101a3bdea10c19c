"""What goes to a worker and what comes back."""

from __future__ import annotations

from dataclasses import dataclass

from stapes.errors import AudioError, CapacityError, ModelError, RequestError
from stapes.options import TranscribeOptions

#: Why a recording failed, in the word that its line of the results has for it.
KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (RequestError, "request"),
    (AudioError, "audio"),
    (ModelError, "model"),
    (CapacityError, "capacity"),
    (MemoryError, "capacity"),
)
UNEXPECTED = "unexpected"  # an error that nobody raised on purpose
WORKER = "worker"  # the worker itself came to an end, most often for want of memory


def kind_of(error: BaseException) -> str:
    """The word for an error."""
    return next((word for kind, word in KINDS if isinstance(error, kind)), UNEXPECTED)


@dataclass(frozen=True)
class Task:
    """One recording to be transcribed.

    Attributes:
        id: what the entry is known by, in the manifest and in the results.
        audio: the path as the manifest has it.
        path: the path to open.
    """

    id: str
    audio: str
    path: str
    options: TranscribeOptions


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    Attributes:
        fields: the fields of its line in the results, behind id and audio.
        kind: None when it was transcribed, else a word of this module.
        audio_s: seconds of the recording, 0 when it failed.
    """

    task: Task
    fields: dict[str, object]
    kind: str | None = None
    audio_s: float = 0.0

    @classmethod
    def failed(cls, task: Task, sentence: str, kind: str) -> Outcome:
        """The outcome of a task that ended with an error."""
        return cls(task, {"error": sentence, "kind": kind}, kind)


@dataclass(frozen=True)
class Ready:
    """A worker has loaded its model."""


@dataclass(frozen=True)
class Died:
    """A worker came to an end, whatever it was doing; `how` goes on from "its worker"."""

    how: str


#: What a worker says: first Ready, or the error of loading; then an outcome for each task.
Message = Ready | Exception | Outcome | Died
