"""`stapes bench startup`: what importing and starting cost."""

from __future__ import annotations

from functools import partial

from stapes.bench.measure import in_turn
from stapes.bench.processes import seconds_of_python

_PROGRAMS = {
    "python_ms": ("-c", "pass"),
    "import_numpy_ms": ("-c", "import numpy"),
    "import_stapes_ms": ("-c", "import stapes"),
    "help_ms": ("-m", "stapes", "--help"),
}


def run(rounds: int) -> dict[str, object]:
    """Milliseconds of whole processes, run in turn; medians."""
    works = [partial(seconds_of_python, *arguments) for arguments in _PROGRAMS.values()]
    seconds = dict(zip(_PROGRAMS, in_turn(works, rounds), strict=True))
    more = seconds["import_stapes_ms"] - seconds["import_numpy_ms"]
    return {
        "bench": "startup",
        **{name: round(1000 * value, 1) for name, value in seconds.items()},
        "more_than_numpy_ms": round(1000 * more, 1),
    }
