"""Exit codes, and which error leads to which."""

from __future__ import annotations

from stapes.errors import AudioError, CancelledError, CapacityError, ModelError, RequestError

DONE = 0
USAGE = 2
AUDIO = 3
MODEL = 4
CAPACITY = 5
INTERRUPTED = 130

_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (RequestError, USAGE),
    (AudioError, AUDIO),
    (ModelError, MODEL),
    (CapacityError, CAPACITY),
    (MemoryError, CAPACITY),
    (CancelledError, INTERRUPTED),
)


def exit_code(error: BaseException) -> int:
    """The exit code of an error; 1, as Python's own, for one that stands for no user's mistake."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), 1)
