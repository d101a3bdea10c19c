"""Text from ids as they come, never in half characters."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Protocol


class HasTokenBytes(Protocol):
    """What is asked of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token's text."""
        ...


class Detokenizer:
    """Turns ids into pieces of text that join to `tokenizer.decode` of all of them.

    Tokens are bytes, and a character may lie in several. Only the bytes of a character that can
    still become whole are held back; what cannot becomes U+FFFD at once, and a U+FFFD that the
    model writes is a character like any other.
    """

    def __init__(self, tokenizer: HasTokenBytes) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """The text that this token settles; often "" within a character."""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def feed_all(self, ids: Iterable[int]) -> str:
        """As `feed` for each id, joined."""
        return "".join(self.feed(token_id) for token_id in ids)

    def flush(self) -> str:
        """The end: an incomplete character as U+FFFD, else "". Then it can be used afresh."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
