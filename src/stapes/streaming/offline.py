"""A whole recording under the rules of streams, computed plainly: what a stream is held against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stapes.audio.speech import SpeechDetector
from stapes.decoder import GenerateResult
from stapes.models.qwen3_asr.model import Transcriber
from stapes.streaming.hypothesis import Asked, Hypothesis
from stapes.streaming.readers import ColdReader, Question, Reading
from stapes.streaming.utterances import Segmenter, Task

F32 = NDArray[np.float32]


def transcribe_offline(
    model: Transcriber, samples: F32, asked: Asked, detector: SpeechDetector | None = None
) -> list[Hypothesis]:
    """The answers to the utterances of a recording, those without text too.

    The same utterances, mel floor, encoder windows and committing steps as a stream's. Nothing is
    kept from one step to the next but what was committed, no draft is offered, and the steps at
    which nothing is committed are not taken.

    Args:
        model: that transcribes.
        samples: f32 [n], mono, 16 kHz, within [-1, 1].
        asked: policy, forced language and context.
        detector: tells speech, of this recording alone; None takes everything for speech.
    """
    segmenter = Segmenter(asked.policy, detector)
    tasks = [*segmenter.hear(samples), *segmenter.finish()]
    answers: dict[int, Hypothesis] = {}
    for task in tasks:
        if not task.is_optional:
            hypothesis = answers.setdefault(task.utterance, Hypothesis(model, asked, task.start))
            _read(model, asked, samples[task.start : task.end], task, hypothesis)
    return list(answers.values())


def _read(
    model: Transcriber, asked: Asked, samples: F32, task: Task, hypothesis: Hypothesis
) -> None:
    if samples.size:
        question = Question(samples, hypothesis.forced_ids, [], hypothesis.budget(task))
        hypothesis.take(_result(ColdReader(model, asked).read(question)), task.end)
    if task.is_final:
        hypothesis.finish()
    else:
        hypothesis.commit(task.end)


def _result(reading: Reading) -> GenerateResult:
    while True:
        try:
            next(reading)
        except StopIteration as done:
            result: GenerateResult = done.value
            return result
