"""Feeding streams, and what their events must always be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.decoder import GenerateResult, Prompt
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.streaming import StreamEvent, StreamPolicy
from stapes.streaming.hypothesis import Asked
from stapes.streaming.stream import Stream

RATE = 16_000
F32 = NDArray[np.float32]

#: Short utterances and steps, so that a few seconds have cuts, commits and partials.
BRISK = StreamPolicy(
    step_s=0.5,
    commit_steps=2,
    unfixed_steps=1,
    rollback_tokens=2,
    new_tokens=6,
    max_utterance_s=10.0,
    boundary_s=2.0,
)

#: The same with room for a tag, which takes many tokens in the vocabulary of the random models.
ROOMY = replace(BRISK, new_tokens=32)


def cut(samples: F32, sizes: int | Iterable[int]) -> list[F32]:
    """Samples in blocks of one size, or of sizes in turn; what is left is the last block."""
    ends = np.arange(sizes, samples.size, sizes) if isinstance(sizes, int) else np.cumsum([*sizes])
    return np.split(samples, ends[ends < samples.size])


def listen(stream: Stream, blocks: Iterable[F32], rarely: bool = False) -> list[StreamEvent]:
    """All events of a stream that is polled after every block, or only at the end."""
    events = []
    for block in blocks:
        stream.feed(block)
        while stream.pending and not rarely:
            events += stream.poll()
    return [*events, *stream.finish()]


def make(model: Qwen3Asr, policy: StreamPolicy = BRISK, **options: Any) -> Stream:
    """A stream for which everything is speech, unless a detector is given."""
    return Stream(model, Asked(policy), **options)


def finals(events: Sequence[StreamEvent]) -> list[StreamEvent]:
    return [event for event in events if event.type == "final"]


def texts(events: Sequence[StreamEvent], kind: str = "final") -> list[str]:
    return [event.text for event in events if event.type == kind]


def check(events: Sequence[StreamEvent]) -> None:
    """Committed texts join to the final one, and cut no word; times are in order."""
    for number in {event.utterance for event in events}:
        own = [e for e in events if e.utterance == number and e.type != "notice"]
        ends = [event for event in own if event.type == "final"]
        committed = texts(own, "committed")
        assert "".join(committed) == "".join(texts(ends))
        assert len(ends) <= 1
        assert not ends or own[-1] is ends[0]
        assert all(text and text == text.rstrip() for text in committed)
    for event in events:
        assert event.start_s <= event.end_s
        assert event.lag_s >= 0
    ends_s = [event.end_s for event in finals(events)]
    starts_s = [event.start_s for event in finals(events)]
    assert all(end <= start for end, start in zip(ends_s, starts_s[1:], strict=False))


@dataclass
class Said:
    """Stands for the decoder: words and the second of the utterance by which each is heard.

    `asked` keeps the seconds of audio of every answer and what it had to begin with. An answer in
    `instead`, by its number, replaces what would be said.
    """

    model: Qwen3Asr
    words: Sequence[tuple[float, str]]
    instead: dict[int, Sequence[int]] = field(default_factory=dict)
    language: str = "English"
    asked: list[tuple[float, str]] = field(default_factory=list)

    def __call__(self, session: Any, prompt: Prompt, options: Any):
        """In place of `readers._answer`."""
        pad = self.model.config.audio_token_id
        ids = list(prompt.token_ids)
        audio_s = ids.count(pad) / 13
        newline = self.model.tokenizer.encode("assistant\n")
        start = next(i for i in range(len(ids), 0, -1) if ids[i - len(newline) : i] == newline)
        forced = ids[start:]
        self.asked.append((audio_s, self.model.tokenizer.decode(forced)))
        answer = self.instead.get(len(self.asked) - 1)
        if answer is None:
            answer = self.answer(audio_s)
            assert answer[: len(forced)] == forced, "what was committed is part of it"
            answer = answer[len(forced) :]
        yield
        return GenerateResult(
            tuple(answer[: options.max_new_tokens]), "stop", len(answer), len(ids)
        )

    def answer(self, audio_s: float) -> list[int]:
        heard = [word for second, word in self.words if second <= audio_s]
        tag = [*self.model.tokenizer.encode(f"language {self.language}")]
        ids = [*tag, self.model.tokenizer.token_id("<asr_text>")]
        for place, word in enumerate(heard):
            ids += self.model.tokenizer.encode(f" {word}" if place else word)
        return ids
