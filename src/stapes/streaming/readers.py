"""An utterance's audio -> the model's answer: from what is kept, or from nothing."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stapes.audio import log_mel
from stapes.audio.mel import HOP
from stapes.audio.recording import SAMPLE_RATE
from stapes.audio.running_mel import RunningMel
from stapes.decoder import Batch, GenerateOptions, GenerateResult, Generation, Prompt, Session
from stapes.decoder.rows import run_rows
from stapes.decoder.session import PREFILL_ROWS
from stapes.errors import RequestError
from stapes.models.qwen3_asr.encoder import AudioEncoder
from stapes.models.qwen3_asr.model import Transcriber
from stapes.streaming.encoding import RunningEncoder, window_frames
from stapes.streaming.hypothesis import Asked

F32 = NDArray[np.float32]
#: Pauses behind each run of a network, and returns the answer.
Reading: TypeAlias = Generator[None, None, GenerateResult]


@dataclass(frozen=True)
class Question:
    """What is to be read.

    Attributes:
        samples: f32 [n], n > 0, from the utterance's first sample on.
        forced_ids: with what the answer begins.
        draft: a guess of what follows.
        budget: most new tokens.
    """

    samples: F32
    forced_ids: list[int]
    draft: list[int]
    budget: int


class Reader(Protocol):
    """Reads one utterance after another.

    Attributes:
        waits_for: an answer that shares the runs of others; None when there is work to do here.
    """

    waits_for: Generation | None

    def begin(self) -> None:
        """What is read next belongs to another utterance."""
        ...

    def read(self, question: Question) -> Reading:
        """The answer; the ids are those behind `forced_ids`."""
        ...


class KeepingReader:
    """Computes only what is new: features, encoder rows, and the decoder's cache are kept.

    Args:
        model: that answers.
        asked: of every utterance.
        batch: of others, whose runs answers share; whoever has it steps it. None: runs of its own.
    """

    def __init__(self, model: Transcriber, asked: Asked, batch: Batch | None = None) -> None:
        self._model = model
        self._asked = asked
        self._batch = batch
        self._session = model.decoder.new_session()
        self.waits_for: Generation | None = None
        self.begin()

    def begin(self) -> None:
        """See `Reader`. The session stays: the prompt's beginning is the same."""
        mels = self._model.config.encoder.num_mel_bins
        self._mel = RunningMel(mels, floor_frames(self._model.encoder, self._asked.policy.window_s))
        self._encoder = RunningEncoder(self._model.encoder)

    def read(self, question: Question) -> Reading:
        """See `Reader`."""
        mel = self._mel.features(question.samples)
        embeddings = yield from self._encoder.encode(mel)
        options = GenerateOptions(question.budget, True, draft_ids=question.draft)
        prompt = _prompt(self._model, self._asked, embeddings, question.forced_ids)
        if self._batch is None:
            return (yield from _answer(self._session, prompt, options))
        return (yield from self._shared(self._batch, prompt, options))

    def _shared(self, batch: Batch, prompt: Prompt, options: GenerateOptions) -> Reading:
        generation = batch.join(self._session, prompt, options)
        self.waits_for = generation
        try:
            while not generation.finished:
                yield
        finally:
            self.waits_for = None
            batch.leave(generation)
        return generation.result()


class ColdReader:
    """Computes everything anew each time, as if nothing had been read before.

    Args:
        model: that answers.
        asked: of every utterance.
    """

    waits_for: Generation | None = None

    def __init__(self, model: Transcriber, asked: Asked) -> None:
        self._model = model
        self._asked = asked

    def begin(self) -> None:
        """See `Reader`."""

    def read(self, question: Question) -> Reading:
        """See `Reader`; the draft is not used."""
        model = self._model
        floor = floor_frames(model.encoder, self._asked.policy.window_s)
        mel = log_mel(question.samples, model.config.encoder.num_mel_bins, floor)
        embeddings = model.encoder.encode(mel)
        yield
        prompt = _prompt(model, self._asked, embeddings, question.forced_ids)
        options = GenerateOptions(question.budget, True)
        return (yield from _answer(model.decoder.new_session(), prompt, options))


def floor_frames(encoder: AudioEncoder, window_s: float) -> int:
    """Mel frames over which the floor is fixed together.

    Raises:
        RequestError: they are no multiple of the encoder's window.
    """
    frames, window = round(window_s * SAMPLE_RATE / HOP), window_frames(encoder)
    if frames % window:
        raise RequestError(
            f"window_s must be a multiple of the model's window of {window * HOP / SAMPLE_RATE:g} "
            f"s, not {window_s:g}."
        )
    return frames


def _prompt(model: Transcriber, asked: Asked, embeddings: F32, forced_ids: list[int]) -> Prompt:
    """The prompt of the audio, with the beginning of the answer behind it."""
    prompt = model.build_prompt(embeddings, asked.context, asked.forced)
    return Prompt([*prompt.token_ids, *forced_ids], prompt.injection)


def _answer(session: Session, prompt: Prompt, options: GenerateOptions) -> Reading:
    generation = Generation(session, prompt, options)
    while generation.should_run():
        generation.take(run_rows([generation.rows(PREFILL_ROWS)], generation.want)[0])
        yield
    return generation.result()
