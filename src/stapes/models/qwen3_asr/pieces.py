"""One recording as pieces of at most 30 s: what each gave, and how they add up to a transcript."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stapes.decoder import GenerateResult
from stapes.models.qwen3_asr.postprocess import Answer
from stapes.models.transcript import FinishReason, Segment, TokenCounts, Word
from stapes.text.joining import join_pieces

_BASE_TOKENS = 32  # the language tag, and room for very short pieces
_TOKENS_PER_S = 16  # several times what any language speaks


def token_budget(duration_s: float) -> int:
    """New tokens that a piece of so many seconds may take: 512 for 30 s."""
    return _BASE_TOKENS + int(_TOKENS_PER_S * max(duration_s, 0.0))


@dataclass(frozen=True)
class Piece:
    """A transcribed piece: from start_s to end_s of the recording.

    `dropped` says why its text was not believed and left out, `no_words` why its words could not
    be timed.
    """

    start_s: float
    end_s: float
    answer: Answer
    result: GenerateResult
    audio_tokens: int
    mel_s: float
    encode_s: float
    confidence: float | None = None
    words: tuple[Word, ...] = ()
    align_s: float = 0.0
    dropped: str | None = None
    no_words: str | None = None

    @property
    def where(self) -> str:
        """The piece in words, for warnings."""
        return f"{self.start_s:.1f}-{self.end_s:.1f} s"


def joined_text(pieces: Sequence[Piece]) -> str:
    """The text of all pieces, joined by script."""
    return join_pieces([piece.answer.text for piece in pieces])


def spoken_language(pieces: Sequence[Piece]) -> str | None:
    """The language named for most of the recording; None when no piece names one."""
    seconds: Counter[str] = Counter()
    for piece in pieces:
        if piece.answer.language and piece.answer.text:
            seconds[piece.answer.language] += round((piece.end_s - piece.start_s) * 1000)
    return seconds.most_common(1)[0][0] if seconds else None


def finish_reason(pieces: Sequence[Piece]) -> FinishReason:
    """The worst of the pieces' reasons."""
    reasons = {piece.result.finish_reason for piece in pieces}
    order: tuple[FinishReason, ...] = ("loop", "length", "stop")
    return next((reason for reason in order if reason in reasons), "stop")


def segments_of(pieces: Sequence[Piece]) -> tuple[Segment, ...]:
    """The pieces that have text."""
    return tuple(
        Segment(
            start_s=piece.start_s,
            end_s=piece.end_s,
            text=piece.answer.text,
            language=piece.answer.language,
            confidence=piece.confidence,
            words=piece.words,
            finish_reason=piece.result.finish_reason,
        )
        for piece in pieces
        if piece.answer.text
    )


def token_counts(pieces: Sequence[Piece]) -> TokenCounts:
    """Tokens, summed over the pieces."""
    return TokenCounts(
        prompt=sum(piece.result.prompt_tokens for piece in pieces),
        audio=sum(piece.audio_tokens for piece in pieces),
        new=sum(len(piece.result.token_ids) for piece in pieces),
    )


def piece_warnings(piece: Piece) -> list[str]:
    """What the user should know about how a piece ended."""
    count = len(piece.result.token_ids)
    if piece.dropped:
        return [f"{piece.where}: {piece.dropped}; this piece has no text."]
    if piece.result.finish_reason == "length":
        return [f"{piece.where}: cut short after {count} tokens; max_new_tokens allows more."]
    if piece.result.finish_reason == "loop":
        return [f"{piece.where}: the model repeated itself and was stopped after {count} tokens."]
    if piece.answer.collapsed:
        return [f"{piece.where}: endless repetitions were taken out of the text."]
    return []
