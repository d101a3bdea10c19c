"""A live stream: audio goes in by `feed`, `poll` does a bit of work, events come out."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from numpy.typing import ArrayLike

from stapes.audio.recording import SAMPLE_RATE
from stapes.audio.speech import SpeechDetector
from stapes.decoder import Batch, GenerateResult
from stapes.errors import StapesError
from stapes.models.interface import Aligner
from stapes.models.qwen3_asr.model import Transcriber
from stapes.models.transcript import Word
from stapes.streaming.events import StreamEvent
from stapes.streaming.hypothesis import Asked, Hypothesis
from stapes.streaming.intake import Intake, alone
from stapes.streaming.readers import ColdReader, KeepingReader, Question, Reader, floor_frames
from stapes.streaming.telling import Teller
from stapes.streaming.utterances import Segmenter, Task

_HEARD_SAMPLES = 4 * SAMPLE_RATE  # in one call of poll: 125 frames of the detector
_REMEMBERED_SAMPLES = 60 * SAMPLE_RATE  # an utterance ends before the silence that tells it


@dataclass(frozen=True)
class Look:
    """What a look at an utterance took.

    Attributes:
        task: what it was.
        result: the answer.
        seconds: of work, from features to answer.
    """

    task: Task
    result: GenerateResult
    seconds: float


class Stream:
    """One stream of speech; `stapes.stream` makes it and explains its arguments.

    It has no thread: work is done within `poll`, at most one run of a network in a call, so that
    any number of streams can be served in turn. One thread may feed while another one polls; two
    that feed, or two that poll, at once are a RequestError.

    What goes wrong in `poll` is raised there and costs the look that it happened in; the stream
    goes on. When that was the last look at an utterance, what was committed is its final text.

    Args:
        model: that transcribes.
        asked: policy, forced language and context.
        sample_rate: Hz of what is fed.
        detector: tells speech, of this stream alone; None takes everything for speech.
        note: a sentence about the detector, which becomes the first notice.
        aligner: gives finals the times of their words.
        reuse: False computes everything anew at each look: for comparison.
        batch: of the model's decoder, whose runs the stream's answers share; whoever has it steps
            it while `waits`. None: `poll` runs the decoder.
        on_look: called with every look, for figures.
        clock: seconds; for tests.
    """

    def __init__(
        self,
        model: Transcriber,
        asked: Asked,
        *,
        sample_rate: int = SAMPLE_RATE,
        detector: SpeechDetector | None = None,
        note: str | None = None,
        aligner: Aligner | None = None,
        reuse: bool = True,
        batch: Batch | None = None,
        on_look: Callable[[Look], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.policy = asked.policy
        _check_room(model, asked)
        self._model, self._asked, self._aligner = model, asked, aligner
        self._on_look = on_look
        self._intake = Intake(sample_rate, self.policy.max_backlog_s, clock)
        self._segmenter = Segmenter(self.policy, detector)
        self._detector = detector
        self._reader: Reader = (
            KeepingReader(model, asked, batch) if reuse else ColdReader(model, asked)
        )
        self._teller = Teller(self.policy, self._intake, clock)
        if note is not None:
            self._teller.notice(note)
        self._polling = threading.Lock()
        self._tasks: deque[Task] = deque()
        self._work: Iterator[None] | None = None
        self._heard_all = False
        self._hypothesis: Hypothesis | None = None
        self._utterance = -1

    # -- what users call -----------------------------------------------------------------------

    def feed(self, samples: ArrayLike) -> None:
        """Take in the next samples; nothing is computed.

        Args:
            samples: (n,), or (n, channels) which are averaged, at the stream's sample rate: floats
                in [-1, 1], or int16, int32 or uint8. They are copied. n may be 0.

        Raises:
            RequestError: wrong shape or type, a finished stream, or two threads feed at once.
            AudioError: NaN or infinity.
            CapacityError: too much waits to be read. In all cases nothing was taken in.
        """
        self._intake.feed(samples)

    def end(self) -> None:
        """No more audio will come. Work that is left is done by `poll`."""
        self._intake.end()

    @property
    def pending(self) -> bool:
        """Whether `poll` has work to do."""
        if self._work is not None or self._tasks or self._intake.waiting:
            return True
        return self._intake.ended and not self._heard_all

    @property
    def waiting_s(self) -> float:
        """Seconds of audio that was fed and that `poll` has not looked at yet."""
        return self._intake.waiting / SAMPLE_RATE

    @property
    def waits(self) -> bool:
        """Whether `poll` can do nothing until an answer in the shared batch is finished."""
        answer = self._reader.waits_for
        return answer is not None and not answer.finished

    def close(self) -> None:
        """Give up what is under way, its place in a shared batch too; by the thread that polls."""
        work, self._work = self._work, None
        if isinstance(work, Generator):
            work.close()

    def poll(self) -> list[StreamEvent]:
        """Do a bounded piece of work, at most one run of a network; what became known, in order.

        Returns [] at once when there is nothing to do, or when more audio has to come.

        Raises:
            NumericError: the model computed a value that is not finite.
            CapacityError: the cache does not fit into memory.
            RequestError: two threads poll at once.
        """
        with alone(self._polling, "poll"):
            if self._work is None:
                self._work = self._next_work()
            if self._work is not None:
                self._advance(self._work)
            self._teller.watch(not self.pending and not self._intake.ended, self._detector)
            return self._teller.take()

    def finish(self) -> list[StreamEvent]:
        """No more audio will come: do all the work that is left and return its events."""
        self.end()
        events = self.poll()
        while self.pending:
            events += self.poll()
        return events

    # -- what is next --------------------------------------------------------------------------

    def _next_work(self) -> Iterator[None] | None:
        self._hear()
        if self._unheard and all(task.is_optional for task in self._tasks):
            return None  # there is more to hear first
        while self._tasks:
            task = self._tasks.popleft()
            if not self._is_left_out(task):
                return self._look(task)
        return None

    @property
    def _unheard(self) -> bool:
        return self._intake.waiting > 0 or (self._intake.ended and not self._heard_all)

    def _hear(self) -> None:
        """Hear what has come, unless there is a task already that has to be done."""
        if any(not task.is_optional and not self._is_left_out(task) for task in self._tasks):
            return
        ended = self._intake.ended  # before taking: what came until then is taken or waits
        self._tasks.extend(self._segmenter.hear(self._intake.take(_HEARD_SAMPLES)))
        if ended and not self._intake.waiting and not self._heard_all:
            self._heard_all = True
            self._tasks.extend(self._segmenter.finish())
        if self._hypothesis is None and not self._tasks:
            self._forget(self._segmenter.heard)

    def _is_left_out(self, task: Task) -> bool:
        if task.is_final:
            return False
        if task.is_optional:
            return bool(self._tasks)
        most = self.policy.max_lag_s
        return most is not None and self._backlog_s(task) > most

    def _backlog_s(self, task: Task) -> float:
        return (self._intake.total - task.end) / SAMPLE_RATE

    def _forget(self, sample: int) -> None:
        self._segmenter.forget(sample)
        self._intake.forget(sample - _REMEMBERED_SAMPLES)

    def _advance(self, work: Iterator[None]) -> None:
        try:
            next(work)
        except StopIteration:
            self._work = None
        except BaseException:
            self._work = None
            raise

    # -- one look ------------------------------------------------------------------------------

    def _look(self, task: Task) -> Iterator[None]:
        """One look at an utterance; pauses behind each run of a network."""
        if task.utterance != self._utterance:
            self._utterance = task.utterance
            self._hypothesis = Hypothesis(self._model, self._asked, task.start)
            self._reader.begin()
        hypothesis = self._hypothesis
        assert hypothesis is not None
        try:
            if task.end > task.start:
                yield from self._read(task, hypothesis)
            self._teller.pace(task)
            if task.is_final:
                yield from self._finish_utterance(task, hypothesis)
            else:
                self._show(task, hypothesis)
        except Exception:
            if task.is_final and hypothesis.give_up():
                self._teller.final(task, hypothesis, ())
            raise
        finally:
            if task.is_final:
                self._hypothesis = None
                self._forget(task.end)

    def _read(self, task: Task, hypothesis: Hypothesis) -> Iterator[None]:
        samples = self._segmenter.window.part(task.start, task.end)
        budget = hypothesis.budget(task)
        question = Question(samples, hypothesis.forced_ids, hypothesis.draft, budget)
        reading, seconds = self._reader.read(question), 0.0
        while True:
            started = time.perf_counter()
            try:
                next(reading)
            except StopIteration as done:
                seconds += time.perf_counter() - started
                result: GenerateResult = done.value
                break
            seconds += time.perf_counter() - started
            yield
        hypothesis.take(result, task.end)
        if self._on_look is not None:
            self._on_look(Look(task, result, seconds))

    def _show(self, task: Task, hypothesis: Hypothesis) -> None:
        if task.commits:
            settled = hypothesis.commit(task.end)
            if settled is not None:
                self._teller.committed(settled, task, hypothesis)
        self._teller.partial(hypothesis.partial(), task, hypothesis)

    def _finish_utterance(self, task: Task, hypothesis: Hypothesis) -> Iterator[None]:
        settled = hypothesis.finish()
        if settled is not None:
            self._teller.committed(settled, task, hypothesis)
        else:
            self._teller.partial("", task, hypothesis)
        for sentence in hypothesis.doubts(task):
            self._teller.notice(sentence, task)
        if not hypothesis.committed_text:
            return
        words: tuple[Word, ...] = ()
        if self._aligner is not None:
            yield  # the aligner's run has a call of its own
            words = self._align(self._aligner, task, hypothesis)
        self._teller.final(task, hypothesis, words)

    def _align(self, aligner: Aligner, task: Task, hypothesis: Hypothesis) -> tuple[Word, ...]:
        samples = self._segmenter.window.part(task.start, task.end)
        text, language = hypothesis.committed_text, hypothesis.language
        start_s = task.start / SAMPLE_RATE
        try:
            return tuple(aligner.align_samples(samples, text, start_s=start_s, language=language))
        except StapesError as error:  # a text without times is better than none
            self._teller.notice(f"The words have no times: {error}", task)
            return ()


def _check_room(model: Transcriber, asked: Asked) -> None:
    """CapacityError when the longest utterance does not fit the model; RequestError for windows."""
    policy = asked.policy
    floor_frames(model.encoder, policy.window_s)
    frames = round(policy.max_utterance_s * 100)
    steps = int(policy.max_utterance_s / policy.step_s) + 1
    model.check_room(frames, asked.context, asked.forced, 2 * policy.new_tokens * steps + 32)
