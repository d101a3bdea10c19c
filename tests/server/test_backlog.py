"""Sound that waits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stapes.errors import RequestError
from stapes.server.scheduling.backlog import Backlog


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-400_000, 400_000), max_size=40))
def test_what_goes_in_comes_out_in_order(steps: list[int]) -> None:
    """Positive steps push so many samples, negative ones take."""
    backlog, pushed, taken = Backlog(2**29), 0, 0
    for step in steps:
        if step > 0:
            backlog.push(np.arange(pushed, pushed + step, dtype=np.float32))
            pushed += step
        else:
            part = backlog.take(-step)
            assert part.size <= -step
            assert np.array_equal(part, np.arange(taken, taken + part.size, dtype=np.float32))
            taken += part.size
        assert len(backlog) == pushed - taken
    while len(backlog):
        part = backlog.take(10**6)
        assert part.size
        assert part[0] == taken
        taken += part.size
    assert taken == pushed
    assert backlog.take(5).size == 0


def test_more_than_may_wait() -> None:
    backlog = Backlog(4_000)
    backlog.push(np.zeros(900, np.float32))
    with pytest.raises(RequestError, match="MB of sound would wait"):
        backlog.push(np.zeros(101, np.float32))
    assert len(backlog) == 900
    assert backlog.take(500).size == 500
    backlog.push(np.zeros(600, np.float32))
    backlog.close()
    assert len(backlog) == 0
