"""A live stream for the page: it transcribes what it has heard so far, again and again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.server.scheduling import LiveEvent

LOOK_S = 0.5


class HeardStream:
    """Says a partial text of all sound so far each half second, and one final text."""

    def __init__(self, model: Qwen3Asr, language: str | None, context: str) -> None:
        self._model, self._language, self._context = model, language, context
        self._samples = np.zeros(0, np.float32)
        self._looked_s = 0.0

    def feed(self, samples: NDArray[np.float32]) -> None:
        self._samples = np.concatenate((self._samples, samples))

    def poll(self) -> Sequence[LiveEvent]:
        heard_s = self._samples.size / SAMPLE_RATE
        if heard_s < self._looked_s + LOOK_S:
            return []
        self._looked_s = heard_s
        return [self._event("partial")]

    def finish(self) -> Sequence[LiveEvent]:
        return [self._event("final")]

    def _event(self, kind: str) -> LiveEvent:
        heard = self._model.transcribe(
            self._samples, sample_rate=SAMPLE_RATE, language=self._language, context=self._context
        )
        return LiveEvent(kind, heard.text, 0.0, heard.duration_s, heard.language, 0.1)


class TalkingStream:
    """Says one word after the other whatever it hears: two are settled before an utterance ends."""

    WORDS = ("one", " two", " three", " four")

    def __init__(self) -> None:
        self._heard = 0
        self._said = 0

    def feed(self, samples: NDArray[np.float32]) -> None:
        self._heard += samples.size

    def poll(self) -> Sequence[LiveEvent]:
        if self._said == len(self.WORDS):
            return []
        number, self._said = self._said, self._said + 1
        kind = "committed" if number < 2 else "partial"
        text = "".join(self.WORDS[2 : number + 1]) if number >= 2 else self.WORDS[number]
        return [LiveEvent(kind, text, 0.0, self._heard / SAMPLE_RATE, "English", 0.0)]

    def finish(self) -> Sequence[LiveEvent]:
        return [
            LiveEvent("final", "one two three.", 0.0, 0.5, "English", 0.0),
            LiveEvent("final", "Four.", 0.6, max(0.7, self._heard / SAMPLE_RATE), "English", 0.0),
        ]
