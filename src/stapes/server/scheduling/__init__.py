"""One worker thread decodes for all requests; the rows of their answers share its runs.

Models that speak have lines: a thread for each, one request at a time.
"""

from stapes.server.scheduling.calling import CallTask
from stapes.server.scheduling.lane import Lane
from stapes.server.scheduling.line import Line, LinePlace, Making
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
    "Line",
    "LinePlace",
    "LiveEvent",
    "LiveStream",
    "LiveTask",
    "Making",
    "Place",
    "Task",
    "Transcribed",
    "TranscriptionTask",
    "Update",
    "Worker",
    "WritingTask",
]
