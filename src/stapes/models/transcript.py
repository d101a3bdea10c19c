"""What a transcription returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "loop", "cancelled"]


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of a transcription, summed over its pieces: whole prompts, audio rows, new ids."""

    prompt: int
    audio: int
    new: int


@dataclass(frozen=True)
class Timings:
    """Seconds spent in each stage; `total` is the wall time from source to text, without `load`."""

    load: float
    audio: float
    mel: float
    encode: float
    prefill: float
    decode: float
    total: float
    align: float = 0.0  # word times, where they were asked for


@dataclass(frozen=True)
class Word:
    """A word with its punctuation, and when it was spoken, in seconds of the recording."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Segment:
    """A stretch of speech of one recording: at most 30 s, cut at silence.

    Attributes:
        start_s, end_s: seconds of the recording; segments are in order and do not overlap.
        text: what was said, without spaces at the ends; never "".
        language: as in `Transcript`.
        confidence: geometric mean of the probabilities that the model gave to the text's tokens,
            from 0 to 1; None when it was not asked for.
        words: the words of `text` in order, when an aligner was used; () otherwise.
        finish_reason: why the model ended the text.
    """

    start_s: float
    end_s: float
    text: str
    language: str | None = None
    confidence: float | None = None
    words: tuple[Word, ...] = ()
    finish_reason: FinishReason = "stop"


@dataclass(frozen=True)
class Transcript:
    """The text of one recording and how it came about.

    Attributes:
        text: the transcript, "" when there was no speech.
        language: Hugging Face's English name of the language, None when none was reported.
        duration_s: true duration of the recording in seconds, before any padding.
        model: name or path of the model.
        finish_reason: "cancelled" when the caller stopped it midway, else the worst of the pieces'
            reasons: "loop", else "length", else "stop".
        truncated: True when any piece was cut short by its token budget.
        warnings: one sentence each.
        token_ids: all new ids in order, control ids included, EOS excluded.
        segments: the stretches of speech that `text` is made of.
    """

    text: str
    language: str | None
    duration_s: float
    model: str
    finish_reason: FinishReason
    truncated: bool
    warnings: tuple[str, ...]
    token_ids: tuple[int, ...]
    tokens: TokenCounts
    timings_s: Timings = field(compare=False)
    segments: tuple[Segment, ...] = ()
