"""Live streams for the page: one transcribes what it has heard, one says words of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE
from stapes.decoder import Batch
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.server.scheduling import LiveEvent

LOOK_S = 0.5


class _Stream:
    """What both streams have in common: sound is counted, and looked at when the worker asks."""

    waiting_s = 0.0
    waits = False

    def __init__(self) -> None:
        self._samples = np.zeros(0, np.float32)
        self._ended = self._finished = False

    def feed(self, samples: NDArray[np.float32]) -> None:
        self._samples = np.concatenate((self._samples, samples))

    def end(self) -> None:
        self._ended = True

    def close(self) -> None:
        self._finished = True

    @property
    def heard_s(self) -> float:
        return self._samples.size / SAMPLE_RATE

    @property
    def pending(self) -> bool:
        return not self._finished and (self._ended or self._has_news())

    def poll(self) -> Sequence[LiveEvent]:
        if self._ended:
            self._finished = True
            return self._last()
        return self._news()

    def _has_news(self) -> bool:
        raise NotImplementedError

    def _news(self) -> Sequence[LiveEvent]:
        raise NotImplementedError

    def _last(self) -> Sequence[LiveEvent]:
        raise NotImplementedError


class HeardStream(_Stream):
    """Says a partial text of all sound so far each half second, and one final text."""

    def __init__(self, model: Qwen3Asr, language: str | None, context: str, batch: Batch) -> None:
        super().__init__()
        self._model, self._language, self._context = model, language, context
        self._looked_s = 0.0

    def _has_news(self) -> bool:
        return self.heard_s >= self._looked_s + LOOK_S

    def _news(self) -> Sequence[LiveEvent]:
        self._looked_s = self.heard_s
        return [self._event("partial")]

    def _last(self) -> Sequence[LiveEvent]:
        return [self._event("final")]

    def _event(self, kind: Literal["partial", "final"]) -> LiveEvent:
        heard = self._model.transcribe(
            self._samples, sample_rate=SAMPLE_RATE, language=self._language, context=self._context
        )
        return LiveEvent(kind, heard.text, 0.0, heard.duration_s, heard.language, 0.1)


class TalkingStream(_Stream):
    """Says one word after the other whatever it hears: two are settled before an utterance ends."""

    WORDS = ("one", " two", " three", " four")

    def __init__(self) -> None:
        super().__init__()
        self._said = 0

    def _has_news(self) -> bool:
        return self._samples.size > 0 and self._said < len(self.WORDS)

    def _news(self) -> Sequence[LiveEvent]:
        number, self._said = self._said, self._said + 1
        if number < 2:
            return [LiveEvent("committed", self.WORDS[number], 0.0, self.heard_s, "English")]
        text = "".join(self.WORDS[2 : number + 1])
        return [LiveEvent("partial", text, 0.0, self.heard_s, "English")]

    def _last(self) -> Sequence[LiveEvent]:
        return [
            LiveEvent("final", "one two three.", 0.0, 0.5, "English"),
            LiveEvent("final", "Four.", 0.6, max(0.7, self.heard_s), "English"),
        ]
