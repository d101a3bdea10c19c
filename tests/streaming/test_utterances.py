"""What is to be done with a stream, as its samples alone say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.rigged import Told, script, wild
from sounds import babble
from stapes.streaming import StreamPolicy
from stapes.streaming.utterances import Segmenter, Task
from streaming.feeding import BRISK, RATE, cut

SOUND = babble(40 * RATE)


def tasks(samples, policy=BRISK, told=None, size=10**9) -> list[Task]:
    segmenter = Segmenter(policy, None if told is None else Told(told))
    found = []
    for block in cut(samples, size):
        found += segmenter.hear(block)
        segmenter.forget(segmenter.heard)
    return [*found, *segmenter.finish()]


def test_looks_lie_on_a_grid_and_the_last_one_ends_it():
    found = tasks(SOUND[: int(2.3 * RATE)])
    assert [task.end / RATE for task in found] == [0.5, 1.0, 1.5, 2.0, 2.3]
    assert [task.step for task in found] == [1, 2, 3, 4, 0]
    assert [task.commits for task in found] == [False, True, False, True, True]
    assert [task.is_optional for task in found] == [True, False, True, False, False]


def test_speech_makes_utterances():
    told, samples = script((0.1, 2), (0.9, 1.2), (0.1, 0.5), (0.9, 1), (0.1, 3), (0.9, 1))
    ends = [t for t in tasks(SOUND[:samples], told=told) if t.is_final]
    spans = [(t.start / RATE, t.end / RATE) for t in ends]
    assert spans == [pytest.approx((1.73, 4.8), abs=0.06), pytest.approx((7.44, 8.7), abs=0.06)]
    assert [t.utterance for t in ends] == [0, 1]


def test_silence_and_clicks_are_no_utterances():
    told, samples = script((0.1, 2), (0.9, 0.06), (0.1, 2))
    assert tasks(SOUND[:samples], told=told) == []
    assert tasks(SOUND[:0]) == []


def test_long_ones_are_cut_within_their_last_seconds():
    found = tasks(SOUND)
    ends = [task for task in found if task.is_final]
    assert all(a.end == b.start for a, b in pairwise(ends))
    assert [t.utterance for t in ends] == list(range(len(ends)))
    for task in ends[:-1]:
        assert BRISK.settled_s <= (task.end - task.start) / RATE <= BRISK.max_utterance_s
    assert ends[-1].end == SOUND.size
    late = [t for t in found if t.step and (t.end - t.start) / RATE > BRISK.settled_s]
    assert late
    assert not any(task.commits for task in late)


@given(
    st.integers(0, SOUND.size),
    st.integers(0, 2**31),
    st.sampled_from([1_000, 7_777, 100_000]),
    st.booleans(),
)
def test_the_cuts_of_the_feed_do_not_matter(length, seed, size, deaf):
    told = None if deaf else wild(length, seed)
    whole = tasks(SOUND[:length], told=told)
    assert tasks(SOUND[:length], told=told, size=size) == whole
    for number in {task.utterance for task in whole}:
        own = [task for task in whole if task.utterance == number]
        assert [task.is_final for task in own] == [False] * (len(own) - 1) + [True]
        assert len({task.start for task in own}) == 1
        assert 0 <= own[0].start <= own[-1].end <= length


def test_what_may_be_needed_is_kept_and_no_more():
    segmenter = Segmenter(StreamPolicy(), Told([0.1] * 2_000))
    for block in cut(SOUND, RATE):
        assert list(segmenter.hear(block)) == []
        segmenter.forget(segmenter.heard)
        assert segmenter.window.end - segmenter.window.start < RATE


def test_a_silence_that_begins_before_a_cut_ends_the_rest():
    """The cut falls into the silence; what is left of the utterance is empty."""
    policy = StreamPolicy(max_utterance_s=4.0, boundary_s=2.0, silence_s=1.5, step_s=0.5)
    told, samples = script((0.9, 2.7), (0.1, 3))
    sound = SOUND[:samples].copy()
    sound[int(2.7 * RATE) :] = 0
    ends = [t for t in tasks(sound, policy, told) if t.is_final]
    assert len(ends) == 2
    assert ends[1].start == ends[1].end == ends[0].end
    assert np.all(np.diff([t.start for t in ends]) > 0)
