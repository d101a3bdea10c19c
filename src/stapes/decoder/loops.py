"""Detecting an answer that repeats itself without end."""

from __future__ import annotations

MAX_PERIOD = 32
_MIN_TOKENS = 48
_MIN_REPEATS = 8


class LoopDetector:
    """Watches ids; says when the last ones are one pattern over and over.

    A pattern of up to 32 tokens counts as a loop once it has come at least 8 times and fills at
    least 48 tokens. A spoken "no, no, no ..." of a dozen is 24 tokens and passes; 30 s of speech
    are about 150 tokens, so 8 repeats of a 20-token phrase do not occur in it.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._matches = [0] * (MAX_PERIOD + 1)  # how many last ids equal the id `period` before

    def feed(self, token_id: int) -> int | None:
        """Take the next id.

        Args:
            token_id: of the answer, in order.

        Returns:
            None, or once a loop is found: how many first ids of the answer there are up to the end
            of the pattern's first occurrence.
        """
        self._ids.append(token_id)
        length = len(self._ids)
        for period in range(1, min(MAX_PERIOD, length - 1) + 1):
            same = self._ids[-1 - period] == token_id
            self._matches[period] = self._matches[period] + 1 if same else 0
            repeated = self._matches[period] + period
            if repeated >= max(_MIN_TOKENS, _MIN_REPEATS * period):
                return length - self._matches[period]
        return None
