"""One worker thread decodes for all requests; the rows of their answers share its runs."""

from stapes.server.scheduling.calling import CallTask
from stapes.server.scheduling.lane import Lane
from stapes.server.scheduling.live import LiveEvent, LiveStream, LiveTask
from stapes.server.scheduling.task import BusyError, Finished, Task, Update
from stapes.server.scheduling.transcribing import Transcribed, TranscriptionTask
from stapes.server.scheduling.worker import Place, Worker
from stapes.server.scheduling.writing import WritingTask

__all__ = [
    "BusyError",
    "CallTask",
    "Finished",
    "Lane",
    "LiveEvent",
    "LiveStream",
    "LiveTask",
    "Place",
    "Task",
    "Transcribed",
    "TranscriptionTask",
    "Update",
    "Worker",
    "WritingTask",
]
