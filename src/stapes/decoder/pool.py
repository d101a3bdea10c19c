"""Sessions that are used again: what they hold may be the beginning of the next prompt."""

from __future__ import annotations

import numpy as np

from stapes.decoder.decoder import Decoder
from stapes.decoder.prompt import Prompt
from stapes.decoder.session import Session

_PAGE_POSITIONS = 512  # of a cache; see `Session`


class SessionPool:
    """Keeps the sessions of finished answers. Not for use from two threads at once.

    Whichever session a prompt gets, its answer is the same: this decides only how much of it must
    be computed.

    Args:
        decoder: whose sessions are kept.
        most: with so many, those that are taken included, no more are made while one is kept; and
            no more are kept.
        most_bytes: and no more than so many bytes of cache; None: no limit.
    """

    def __init__(self, decoder: Decoder, most: int, most_bytes: int | None = None) -> None:
        self._decoder = decoder
        self._most, self._most_bytes = most, most_bytes
        self._taken = 0
        self._kept: list[Session] = []  # the one used last stands last

    def __len__(self) -> int:
        """Sessions that are kept."""
        return len(self._kept)

    @property
    def held_bytes(self) -> int:
        """Bytes of their caches."""
        return sum(map(_held_bytes, self._kept))

    def take(self, prompt: Prompt) -> Session:
        """The session for a prompt; it is the caller's until it is given back.

        It is the one that begins most like the prompt, if that is half of what it holds or more.
        Else a new one while there are few, so that the others keep what they hold, and then the one
        that was used longest ago.
        """
        self._taken += 1
        ids = np.asarray(prompt.token_ids)
        shared = [session.record.equal_ids(ids) for session in self._kept]
        best = int(np.argmax(shared)) if shared else 0
        if shared and 0 < self._kept[best].length <= 2 * shared[best]:
            return self._kept.pop(best)
        if not self._kept or len(self._kept) + self._taken <= self._most:
            return self._decoder.new_session()
        return self._kept.pop(0)

    def give(self, session: Session) -> None:
        """Keep a session whose answer is finished; what it holds is true even after a failure."""
        self._taken -= 1
        self._kept.append(session)
        while len(self._kept) > self._most or self._exceeds():
            del self._kept[0]

    def _exceeds(self) -> bool:
        return self._most_bytes is not None and self.held_bytes > self._most_bytes


def _held_bytes(session: Session) -> int:
    return session.capacity // _PAGE_POSITIONS * session.cache.page_bytes
