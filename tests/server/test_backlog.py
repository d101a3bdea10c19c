"""Sound that waits."""

from __future__ import annotations

from errno import ENOSPC

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stapes.errors import CapacityError
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
            part, _ = backlog.take(-step)
            assert part.size <= -step
            assert np.array_equal(part, np.arange(taken, taken + part.size, dtype=np.float32))
            taken += part.size
        assert len(backlog) == pushed - taken
    while len(backlog):
        part, _ = backlog.take(10**6)
        assert part.size
        assert part[0] == taken
        taken += part.size
    assert taken == pushed
    assert backlog.take(5)[0].size == 0


def test_more_than_may_wait() -> None:
    backlog = Backlog(4_000)
    backlog.push(np.zeros(900, np.float32))
    with pytest.raises(CapacityError, match=r"More than 0\.0038"):
        backlog.push(np.zeros(101, np.float32))
    assert len(backlog) == 900
    assert backlog.take(500)[0].size == 500
    backlog.push(np.zeros(600, np.float32))
    backlog.close()
    assert len(backlog) == 0


def test_a_full_disk(monkeypatch) -> None:
    backlog = Backlog(2**29)
    backlog.push(np.ones(1000, np.float32))

    def full(self, data: bytes) -> None:
        raise OSError(ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("tempfile.SpooledTemporaryFile.write", full)
        with pytest.raises(CapacityError, match="sound that waits: No space left"):
            backlog.push(np.ones(1000, np.float32))
    assert len(backlog) == 1000
    backlog.push(np.full(10, 2, np.float32))
    assert np.array_equal(backlog.take(2000)[0], [1.0] * 1000 + [2.0] * 10)


def test_how_long_samples_waited() -> None:
    now = [0.0]
    backlog = Backlog(2**29, lambda: now[0])
    for second in range(5):
        now[0] = second
        for _ in range(4):  # in messages that count as one
            backlog.push(np.zeros(25, np.float32))
    now[0] = 10.0
    waited = [backlog.take(50)[1] for _ in range(10)]
    assert waited == [10, 10, 9, 9, 8, 8, 7, 7, 6, 6]
    assert backlog.take(50)[1] == 0
    backlog.push(np.zeros(50, np.float32))
    assert backlog.take(50)[1] == 0


def test_messages_that_come_together_have_the_time_of_the_first() -> None:
    now = [0.0]
    backlog = Backlog(2**29, lambda: now[0])
    for came in (0.0, 0.0625, 0.125):
        now[0] = came
        backlog.push(np.zeros(10, np.float32))
    now[0] = 1.0
    assert [backlog.take(10)[1] for _ in range(3)] == [1.0, 1.0, 0.875]
