"""The pieces of one recording, decoded side by side and given back in order."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE, log_mel, split_at_quiet
from stapes.decoder import (
    Batch,
    Decoder,
    GenerateOptions,
    GenerateResult,
    Generation,
    SamplingOptions,
    SessionPool,
)
from stapes.models.qwen3_asr.pieces import Piece, token_budget
from stapes.models.qwen3_asr.postprocess import repeats_context
from stapes.models.qwen3_asr.word_times import with_words
from stapes.options import TranscribeOptions
from stapes.system import available_memory_bytes

if TYPE_CHECKING:
    from stapes.models.interface import Aligner
    from stapes.models.qwen3_asr.model import Transcriber

MIN_RETRY_S = 4.0  # a piece that can be halved and still holds a phrase
_WIDTH = 16  # answers side by side
_MEMORY_SHARE = 0.25  # of what is free, for caches


class Stretch(Protocol):
    """A stretch of a recording: samples f32 [n], mono 16 kHz, from start_s to end_s."""

    @property
    def start_s(self) -> float: ...  # noqa: D102
    @property
    def end_s(self) -> float: ...  # noqa: D102
    @property
    def samples(self) -> NDArray[np.float32]: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class _Part:
    """A part of a stretch, for a second try."""

    start_s: float
    end_s: float
    samples: NDArray[np.float32]


@dataclass(eq=False)
class _Job:
    """A stretch on its way: its answer under way, what came of it, or the parts it was cut into."""

    audio: Stretch
    second_try: bool = False
    mel_s: float = 0.0
    encode_s: float = 0.0
    audio_tokens: int = 0
    piece: Piece | None = None
    parts: list[_Job] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return all(part.done for part in self.parts) if self.parts else self.piece is not None

    def pieces(self) -> Iterator[Piece]:
        """What came of it, in order, as far as it is there."""
        if self.piece is not None:
            yield self.piece
        for part in self.parts:
            yield from part.pieces()


class Pipeline:
    """Transcribes stretches of a recording, `width` of them at a time.

    Each answer is what it would be alone. A runaway loop, and an answer that is nothing but the
    context, are tried once more in two halves, then dropped: the piece has no text and says why.
    Sessions are used again, so that a long context is read once.

    `run` does it all. Who decodes several recordings at once gives their pipelines one batch and
    calls `offer`, `begin`, `take` and `ready` itself.

    Args:
        model: whose encoder, prompts and decoder are used.
        options: see `TranscribeOptions`.
        forced: name of the language that is forced, or None.
        batch: in which the answers are decoded; None for one of its own.
        sessions: from which they are taken; None for some of its own.
        sampling: how ids are drawn; None takes the likeliest.
        aligner: times the words of each piece; None: they have no times.

    Attributes:
        prefill_s, decode_s: seconds of finished answers in shared runs, shared out by rows.
    """

    def __init__(
        self,
        model: Transcriber,
        options: TranscribeOptions,
        forced: str | None,
        *,
        batch: Batch | None = None,
        sessions: SessionPool | None = None,
        sampling: SamplingOptions | None = None,
        aligner: Aligner | None = None,
    ) -> None:
        self.model = model
        self.options = options
        self.forced = forced
        self.batch = Batch(model.decoder) if batch is None else batch
        self.width = options.batch or default_width(model.decoder, options.chunk_seconds)
        self.cancelled = False
        self.prefill_s = self.decode_s = 0.0
        self._sampling, self._aligner = sampling, aligner
        self._sessions = SessionPool(model.decoder, self.width) if sessions is None else sessions
        self._order: deque[_Job] = deque()
        self._waiting: deque[_Job] = deque()
        self._jobs: dict[Generation, _Job] = {}

    def run(
        self, stretches: Iterable[Stretch], should_cancel: Callable[[], bool] | None = None
    ) -> Iterator[Piece]:
        """The pieces in the order of the recording, each as soon as it and all before it are done.

        Once `should_cancel` says so, nothing more is decoded; what is done comes, with gaps.
        """
        source = iter(stretches)
        while self._fill(source) or self._jobs:
            if should_cancel is not None and should_cancel():
                self.cancelled = True
                break
            for generation in self.batch.step():
                self.take(generation)
            yield from self.ready()
        for job in self._order:
            yield from job.pieces()

    @property
    def running(self) -> int:
        """Answers under way."""
        return len(self._jobs)

    @property
    def waiting(self) -> int:
        """Stretches whose answers have not begun."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether a stretch that was offered has not been given back as pieces."""
        return bool(self._order)

    def owns(self, generation: Generation) -> bool:
        """Whether an answer under way is one of this recording's."""
        return generation in self._jobs

    def offer(self, stretch: Stretch) -> None:
        """Take the next stretch of the recording; `begin` starts its answer."""
        self._order.append(_Job(stretch))
        self._waiting.append(self._order[-1])

    def begin(self) -> Iterator[None]:
        """Encode the first of the waiting stretches and let its answer join the batch.

        It yields between steps of about 8 s of sound, so that other work can be done meanwhile.
        """
        return self._start(self._waiting.popleft())

    def ready(self) -> Iterator[Piece]:
        """Pieces that are done, as are all before them, and have not been given yet."""
        while self._order and self._order[0].done:
            yield from self._order.popleft().pieces()

    def leave(self) -> None:
        """Take all answers out of the batch; their sessions can be used again."""
        for generation in self._jobs:
            self.batch.leave(generation)
            self._sessions.give(generation.session)
        self._jobs.clear()
        self._waiting.clear()

    def _fill(self, source: Iterator[Stretch]) -> bool:
        """Start answers until `width` are under way; whether any was."""
        started = False
        while self.running < self.width:
            stretch = None if self._waiting else next(source, None)
            if stretch is not None:
                self.offer(stretch)
            if not self._waiting:
                break
            for _ in self.begin():
                pass
            started = True
        return started

    def _start(self, job: _Job) -> Iterator[None]:
        model, options, clock = self.model, self.options, time.perf_counter
        began = clock()
        mel = log_mel(job.audio.samples, model.config.encoder.num_mel_bins)
        mel_done = clock()
        seconds = job.audio.samples.size / SAMPLE_RATE
        budget = options.max_new_tokens or token_budget(seconds)
        model.check_room(mel.shape[0], options.context, self.forced, budget)
        model.decoder.tracer.stage("mel", began, mel_done)
        job.mel_s = mel_done - began
        embeddings = yield from self._encode(job, mel)
        job.audio_tokens = embeddings.shape[0]
        prompt = model.build_prompt(embeddings, options.context, self.forced)
        wanted = GenerateOptions(
            budget, options.loop_detection, sampling=self._sampling, logprobs=True
        )
        session = self._sessions.take(prompt)
        self._jobs[self.batch.join(session, prompt, wanted)] = job

    def _encode(
        self, job: _Job, mel: NDArray[np.float32]
    ) -> Generator[None, None, NDArray[np.float32]]:
        """The embeddings of a stretch; the time that others take between the steps is not its."""
        steps, clock = self.model.encoder.encode_steps(mel), time.perf_counter
        while True:
            began = clock()
            try:
                next(steps)
            except StopIteration as done:
                embeddings: NDArray[np.float32] = done.value
                return embeddings
            finally:
                ended = clock()
                job.encode_s += ended - began
                self.model.decoder.tracer.stage("encode", began, ended)
            yield

    def take(self, generation: Generation) -> None:
        """A finished answer: its text, or a second try. Raises what ended it."""
        job = self._jobs.pop(generation)
        self._sessions.give(generation.session)
        self.prefill_s += generation.prefill_share_s
        self.decode_s += generation.decode_share_s
        result = generation.result()
        piece = self._piece(job, result)
        trouble = self._trouble(piece)
        if trouble is None:
            job.piece = self._timed(job, piece)
        elif job.second_try or not self._halve(job):
            dropped = replace(piece.answer, text="")
            often = ", twice" if job.second_try else ""
            job.piece = replace(piece, answer=dropped, dropped=trouble + often)

    def _timed(self, job: _Job, piece: Piece) -> Piece:
        return with_words(piece, job.audio.samples, self._aligner) if self._aligner else piece

    def _piece(self, job: _Job, result: GenerateResult) -> Piece:
        answer = self.model.read_answer(result.token_ids[: result.kept], self.forced)
        return Piece(
            start_s=job.audio.start_s,
            end_s=job.audio.end_s,
            answer=answer,
            result=result,
            audio_tokens=job.audio_tokens,
            mel_s=job.mel_s,
            encode_s=job.encode_s,
            confidence=_confidence(result, answer.text_from) if answer.text else None,
        )

    def _trouble(self, piece: Piece) -> str | None:
        """Why an answer cannot be believed; None when it can."""
        if piece.result.finish_reason == "loop":
            return "the model repeated itself without end"
        if repeats_context(piece.answer.text, self.options.context):
            return "the model gave back the context and nothing else"
        return None

    def _halve(self, job: _Job) -> bool:
        """Cut a stretch at a quiet point in its midst, for a second try; False when too short."""
        seconds = job.audio.samples.size / SAMPLE_RATE
        if seconds < MIN_RETRY_S:
            return False
        spans = split_at_quiet(job.audio.samples, 0.6 * seconds)
        for span in spans:
            first = job.audio.start_s + span.start / SAMPLE_RATE
            part = _Part(
                first,
                first + (span.end - span.start) / SAMPLE_RATE,
                job.audio.samples[span.start : span.end],
            )
            job.parts.append(_Job(part, second_try=True))
        self._waiting.extendleft(reversed(job.parts))
        return True


def _confidence(result: GenerateResult, text_from: int) -> float | None:
    """Geometric mean of the probabilities of the text's tokens."""
    logprobs = (result.logprobs or ())[text_from : result.kept]
    return math.exp(math.fsum(logprobs) / len(logprobs)) if logprobs else None


def default_width(decoder: Decoder, seconds: float) -> int:
    """Answers decoded side by side: 16, as far as a quarter of the free memory goes.

    With 16 rows the core computes nearly as fast as it can, so that more would gain little, but
    need memory for their caches. `seconds` is the length of the longest stretch.
    """
    positions = 13 * math.ceil(seconds) + 16 + token_budget(seconds) // 2
    cache = decoder.new_cache().page_bytes * math.ceil(positions / 512)
    free = available_memory_bytes()
    return _WIDTH if free is None else max(1, min(_WIDTH, int(_MEMORY_SHARE * free / cache)))
