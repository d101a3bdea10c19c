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
    """The cache of one session: the answer of its present piece, and how much has been given."""

    script: Answers
    answer: list[int] | None = None
    given: int = 0
    length: int = 0
    capacity: int = 0
    page_bytes: int = 1024

    def reserve(self, positions: int) -> None:
        self.capacity = -(-positions // 512) * 512

    def truncate(self, length: int) -> None:
        if length < self.length:  # a session that is used for the next piece
            self.answer, self.given = None, 0
        self.length = length

    def next_id(self) -> int:
        if self.answer is None:
            self.answer = self.script.next_answer()
        self.given += 1
        return self.answer[min(self.given, len(self.answer)) - 1]


class Answers:
    """Makes executors that give one answer after the other, one for each piece.

    The last answer is given to all further pieces; behind its end an answer repeats its last id.
    `pieces` counts the answers that were begun.
    """

    def __init__(self, answers: Sequence[Sequence[int]], vocab_size: int) -> None:
        self.answers = [list(answer) for answer in answers]
        self.vocab_size = vocab_size
        self.pieces = 0

    def __call__(self, plan: Plan) -> Answers:
        return self

    def next_answer(self) -> list[int]:
        self.pieces += 1
        return self.answers[min(self.pieces, len(self.answers)) - 1]

    def new_cache(self, *shape: Any) -> AnswerCache:
        return AnswerCache(self)

    def run(self, inputs: Mapping[str, Any], caches: Sequence[AnswerCache]) -> dict[str, Any]:
        sequences = inputs["sequences"]
        for cache, rows in zip(caches, np.bincount(sequences, minlength=len(caches)), strict=True):
            cache.length += int(rows)
        ids = [caches[i].next_id() for i in sequences[inputs["picked"]]]
        logits = np.zeros((len(ids), self.vocab_size), np.float32)
        logits[np.arange(len(ids)), ids] = 9
        return {"next": np.array(ids, np.int32), "logits": logits}


def rig(model: Qwen3Asr, *answers: Sequence[int]) -> Answers:
    """Let a model answer so, piece by piece."""
    old = model.decoder
    script = Answers(answers, old.spec.head_size)
    model.decoder = Decoder(old.spec, old.weights, script, old.kv)  # type: ignore[arg-type]
    return script


def says(model: Qwen3Asr, text: str, language: str | None = "English") -> list[int]:
    """The ids of a whole answer."""
    encode = model.tokenizer.encode
    return [*encode(f"language {language}"), TAG, *encode(text), END]
