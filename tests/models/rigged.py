"""A loaded model whose decoder gives the answers that a test writes down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints import CONTROL
from stapes.decoder import Decoder
from stapes.graph import Plan
from stapes.models.qwen3_asr import Qwen3Asr

TAG, END = CONTROL["<asr_text>"], CONTROL["<|im_end|>"]


@dataclass
class AnswerCache:
    """The cache of one piece: its answer, and how much of it has been given."""

    answer: list[int]
    given: int = 0
    length: int = 0
    capacity: int = 0
    page_bytes: int = 1024

    def reserve(self, positions: int) -> None:
        self.capacity = -(-positions // 512) * 512

    def truncate(self, length: int) -> None:
        self.length = length


class Answers:
    """Makes executors that give one answer after the other, one for each piece.

    The last answer is given to all further pieces; behind its end an answer repeats its last id.
    """

    def __init__(self, answers: Sequence[Sequence[int]]) -> None:
        self.answers = [list(answer) for answer in answers]
        self.caches: list[AnswerCache] = []

    def __call__(self, plan: Plan) -> Answers:
        return self

    def new_cache(self, *shape: Any) -> AnswerCache:
        number = min(len(self.caches), len(self.answers) - 1)
        self.caches.append(AnswerCache(self.answers[number]))
        return self.caches[-1]

    def run(self, inputs: Mapping[str, Any], caches: Sequence[AnswerCache]) -> dict[str, Any]:
        (cache,) = caches
        cache.length += inputs["ids"].size
        if not inputs["picked"].size:
            return {"next": np.zeros(0, np.int32)}
        token = cache.answer[min(cache.given, len(cache.answer) - 1)]
        cache.given += 1
        return {"next": np.array([token], np.int32)}


def rig(model: Qwen3Asr, *answers: Sequence[int]) -> Answers:
    """Let a model answer so, piece by piece."""
    script = Answers(answers)
    old = model.decoder
    model.decoder = Decoder(old.spec, old.weights, script, old.kv)  # type: ignore[arg-type]
    return script


def says(model: Qwen3Asr, text: str, language: str | None = "English") -> list[int]:
    """The ids of a whole answer."""
    encode = model.tokenizer.encode
    return [*encode(f"language {language}"), TAG, *encode(text), END]
