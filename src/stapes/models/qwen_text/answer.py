"""What a text model returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from stapes.decoder import FinishReason


@dataclass(frozen=True)
class TextTokens:
    """Tokens of an answer: of its prompt, of these the ones that were not computed anew; new ones.

    The id that ends an answer is in none of them.
    """

    prompt: int
    reused: int = field(compare=False)
    new: int


@dataclass(frozen=True)
class TextTimings:
    """Seconds: loading; up to the first new id; all further ids; from the prompt to the end."""

    load: float
    prefill: float
    decode: float
    total: float

    def tokens_per_s(self, new: int) -> float | None:
        """New tokens behind the first in each second; None when there are none."""
        return (new - 1) / self.decode if new > 1 and self.decode > 0 else None


@dataclass(frozen=True)
class Answer:
    """The text that continues a prompt, or the next message of a chat, and how it came about.

    Attributes:
        text: the new text, without the prompt.
        token_ids: the new ids in order, control ids included, EOS excluded.
        finish_reason: "stop" (the model ended it), "length" (the token budget ran out) or
            "cancelled".
        warnings: one sentence each.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    tokens: TextTokens
    timings_s: TextTimings = field(compare=False)
    warnings: tuple[str, ...] = ()
