"""Features of a recording that grows: those of the whole, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sounds import babble
from stapes.audio import log_mel
from stapes.audio.running_mel import RunningMel
from stapes.errors import RequestError

RATE = 16_000
SOUND = babble(20 * RATE)


@settings(max_examples=40)
@given(st.lists(st.integers(1, SOUND.size), min_size=1, max_size=8))
def test_every_beginning_has_the_features_of_a_recording(ends):
    """In any order: a beginning may be shorter than the one before."""
    running = RunningMel(128, 800)
    for end in ends:
        given_ = running.features(SOUND[:end])
        assert np.array_equal(given_, log_mel(SOUND[:end], 128, 800))


def test_a_beginning_does_not_depend_on_what_was_asked_before():
    fine = RunningMel(80, 800)
    for end in range(7_000, 12 * RATE, 1_237):
        last = fine.features(SOUND[:end])
    assert np.array_equal(last, log_mel(SOUND[:end], 80, 800))


def test_later_sounds_change_nothing_in_a_finished_window():
    loud = np.concatenate([0.01 * SOUND[: 10 * RATE], 0.9 * np.ones(RATE, np.float32)])
    quiet = loud[: 10 * RATE]
    before, after = log_mel(quiet, 128, 800), log_mel(loud, 128, 800)
    assert np.array_equal(after[:800], before[:800])
    assert not np.array_equal(log_mel(loud)[:800], before[:800])  # Whisper's rule does change it


def test_the_first_window_is_that_of_the_rule_for_recordings():
    assert np.array_equal(log_mel(SOUND[: 8 * RATE], 128, 800), log_mel(SOUND[: 8 * RATE]))


def test_a_floor_belongs_to_at_least_one_frame():
    with pytest.raises(RequestError, match="floor_frames must be positive, not 0"):
        log_mel(SOUND, 128, 0)
