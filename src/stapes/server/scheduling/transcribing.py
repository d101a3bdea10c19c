"""A recording: a thread reads it, the worker encodes its pieces and decodes them beside others'."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import BinaryIO

from stapes.audio.pieces import Piece as Stretch
from stapes.decoder import Generation, SamplingOptions
from stapes.errors import AudioError, StapesError
from stapes.models.interface import Aligner
from stapes.models.qwen3_asr.model import Transcriber
from stapes.models.qwen3_asr.pieces import Piece
from stapes.models.qwen3_asr.pipeline import Pipeline
from stapes.models.recording import ReadingLimits, Recording
from stapes.models.transcript import Transcript
from stapes.options import TranscribeOptions
from stapes.server.scheduling.lane import Lane
from stapes.server.scheduling.task import Task, Tell, Update

_AHEAD = 2  # pieces that are read before they are asked for
_LOOK_S = 0.2  # how often a reader that is ahead looks whether it is still wanted


@dataclass(frozen=True)
class Transcribed:
    """What a transcription gives: the pieces that have text are the transcript's segments."""

    transcript: Transcript
    pieces: tuple[Piece, ...]


class Reader:
    """Reads a recording in a thread of its own, a little ahead of those who take its pieces.

    The file is closed when the thread ends.
    """

    def __init__(
        self, recording: Recording, file: BinaryIO, wake: Callable[[], None], stop: threading.Event
    ) -> None:
        self.recording = recording
        self._file, self._wake, self._stop = file, wake, stop
        self._error: BaseException | None = None
        self._pieces: Queue[Stretch] = Queue(_AHEAD)
        self._over = False
        threading.Thread(target=self._run, name="stapes-reader", daemon=True).start()

    @property
    def ended(self) -> bool:
        """Whether all pieces have been taken. Raises what ended the reading."""
        if not self._over or not self._pieces.empty():
            return False
        if self._error is not None:
            raise self._error
        return True

    def next(self) -> Stretch | None:
        """The next piece; None when there is none yet, or no more."""
        try:
            return self._pieces.get_nowait()
        except Empty:
            return None

    def _run(self) -> None:
        try:
            with self._file, self.recording as recording:
                for piece in recording.pieces():
                    self._put(piece)
        except StapesError as error:
            # A traceback would hold what was read for as long as the error is there.
            self._error = None if self._stop.is_set() else error.with_traceback(None)
        except Exception as error:
            self._error = error
        self._over = True
        self._wake()

    def _put(self, piece: Stretch) -> None:
        while not self._stop.is_set():
            try:
                self._pieces.put(piece, timeout=_LOOK_S)
            except Full:
                continue
            self._wake()
            return


class TranscriptionTask(Task):
    """Tells an `Update` with each piece in the order of the recording, and a `Transcribed`.

    Args:
        tell: see `Task`.
        model: that transcribes.
        file: the recording; it is closed in every case.
        options: see `TranscribeOptions`.
        forced: name of the language that is forced, or None.
        limits: of what reading the recording may cost.
        sampling: how ids are drawn; None takes the likeliest.
        aligner: times the words; None: nobody asked for that.
    """

    def __init__(
        self,
        tell: Tell,
        model: Transcriber,
        file: BinaryIO,
        options: TranscribeOptions,
        forced: str | None,
        limits: ReadingLimits,
        sampling: SamplingOptions | None = None,
        aligner: Aligner | None = None,
    ) -> None:
        super().__init__(tell)
        self._model, self._file, self._options = model, file, options
        self._forced, self._limits, self._sampling = forced, limits, sampling
        self._aligner = aligner
        self._stop = threading.Event()
        self._reader: Reader | None = None
        self._encoding: Iterator[None] | None = None
        self._pieces: list[Piece] = []
        self._pipeline: Pipeline | None = None

    @property
    def running(self) -> int:
        """See `Task`."""
        encoding = 0 if self._encoding is None else 1
        return encoding + (self._pipeline.running if self._pipeline else 0)

    def begin(self, lane: Lane) -> None:
        """See `Task`; from here on the recording is read."""
        self._pipeline = Pipeline(
            self._model,
            self._options,
            self._forced,
            batch=lane.batch,
            sessions=lane.sessions,
            sampling=self._sampling,
            aligner=self._aligner,
        )
        tracer = self._model.decoder.tracer
        recording = Recording(self._file, None, self._options, tracer, self._check)
        self._reader = Reader(recording, self._file, lane.wake, self._stop)

    def work(self, may_add: bool) -> bool:
        """See `Task`: a step of encoding."""
        if self._encoding is not None:
            self._encode()
            return True
        pipeline, reader = self._begun()
        if pipeline.running and not may_add:
            return False
        stretch = None if pipeline.waiting else reader.next()
        if stretch is not None:
            pipeline.offer(stretch)
        if not pipeline.waiting:
            return False
        self._encoding = pipeline.begin()
        self._encode()
        return True

    def owns(self, generation: Generation) -> bool:
        """See `Task`."""
        return self._pipeline is not None and self._pipeline.owns(generation)

    def take(self, generation: Generation) -> None:
        """See `Task`."""
        pipeline, _ = self._begun()
        pipeline.take(generation)
        for piece in pipeline.ready():
            self._pieces.append(piece)
            self.tell(Update(piece))

    @property
    def done(self) -> bool:
        """See `Task`."""
        pipeline, reader = self._begun()
        return not pipeline.busy and reader.ended

    def result(self) -> Transcribed:
        """See `Task`."""
        pipeline, reader = self._begun()
        transcript = self._model.transcript(reader.recording, self._pieces, pipeline)
        return Transcribed(transcript, tuple(self._pieces))

    def close(self) -> None:
        """See `Task`."""
        self._stop.set()
        self._encoding = None
        if self._pipeline is not None:
            self._pipeline.leave()
        if self._reader is None:
            self._file.close()
        # The recording knows this task: without the cycle its memory, which is a detector's and
        # not only Python's, is given back at once.
        self._reader = self._pipeline = None

    def _begun(self) -> tuple[Pipeline, Reader]:
        assert self._pipeline is not None
        assert self._reader is not None
        return self._pipeline, self._reader

    def _encode(self) -> None:
        assert self._encoding is not None
        try:
            next(self._encoding)
        except StopIteration:
            self._encoding = None

    def _check(self, seconds: float, work_s: float) -> None:
        if self._stop.is_set():
            raise AudioError("The recording is no longer wanted.")
        self._limits.check(seconds, work_s)
