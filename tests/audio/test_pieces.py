"""Pieces of a recording: bounds, exact times, nothing spoken left out, blocks of any size."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.rigged import Told, regions, script, wild
from sounds import noise
from stapes.audio import split_at_quiet
from stapes.audio.pieces import pieces_of
from stapes.audio.speech import SpeechRule
from stapes.errors import RequestError

RULE = SpeechRule()


def blocks_of(samples, sizes):
    """The samples in blocks of the given sizes, over and over."""
    at = turn = 0
    while at < samples.size:
        yield samples[at : at + sizes[turn % len(sizes)]]
        at, turn = at + sizes[turn % len(sizes)], turn + 1


def spans(pieces):
    return [(round(piece.start_s * 16_000), round(piece.end_s * 16_000)) for piece in pieces]


def cut(*parts, max_seconds=30.0):
    """Spans in seconds of the pieces of (probability, seconds) parts of noise."""
    probabilities, samples = script(*parts)
    pieces = pieces_of([noise(samples)], max_seconds, Told(probabilities))
    return [(piece.start_s, piece.end_s) for piece in pieces]


lengths = st.integers(1, 400_000)
limits = st.floats(1.0, 8.0)
seeds = st.integers(0, 10_000)
sizes = st.lists(st.integers(1, 60_000), min_size=1, max_size=5)


@given(n=lengths, limit=limits, seed=seeds, sizes=sizes)
def test_pieces_depend_on_the_samples_and_not_on_the_blocks(n, limit, seed, sizes):
    samples, told = noise(n, seed), wild(n, seed)
    whole = list(pieces_of([samples], limit, Told(told)))
    parts = list(pieces_of(blocks_of(samples, sizes), limit, Told(told)))
    assert spans(parts) == spans(whole)
    for piece, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(piece.samples, other.samples)


@given(n=lengths, limit=limits, seed=seeds)
def test_bounds_order_and_times(n, limit, seed):
    samples = noise(n, seed)
    pieces = list(pieces_of(blocks_of(samples, [16_000]), limit, Told(wild(n, seed))))
    found = spans(pieces)
    assert all(0 <= start < end <= n for start, end in found)
    assert all(end - start <= limit * 16_000 for start, end in found)
    assert all(a[1] <= b[0] for a, b in pairwise(found))
    for piece, (start, end) in zip(pieces, found, strict=True):
        assert piece.start_s == start / 16_000
        assert piece.end_s == end / 16_000
        np.testing.assert_array_equal(piece.samples, samples[start:end])


@given(n=lengths, limit=limits, seed=seeds)
def test_all_speech_lies_within_pieces(n, limit, seed):
    told = wild(n, seed)
    covered = np.zeros(n, bool)
    for start, end in spans(pieces_of([noise(n, seed)], limit, Told(told))):
        covered[start:end] = True
    for start, end in regions(told, RULE, n):
        assert covered[start:end].all()


@given(n=lengths, limit=limits, seed=seeds, sizes=sizes)
def test_without_a_detector_everything_is_covered_as_if_cut_whole(n, limit, seed, sizes):
    samples = noise(n, seed)
    found = spans(pieces_of(blocks_of(samples, sizes), limit, None))
    assert found == [(span.start, span.end) for span in split_at_quiet(samples, limit)]


@pytest.mark.parametrize("seconds", [0.01, 1.0, 100.0])
def test_a_silent_recording_gives_no_piece(seconds):
    assert cut((0.0, seconds)) == []


def test_nothing_at_all_gives_no_piece():
    assert list(pieces_of([], 30.0, Told([]))) == []
    assert list(pieces_of([], 30.0, None)) == []


def test_speech_comes_with_what_stands_before_and_after():
    ((start, end),) = cut((0.0, 3.2), (1.0, 1.6), (0.0, 3.2))
    assert start == pytest.approx(3.2 - RULE.before_s, abs=1e-3)
    assert end == pytest.approx(4.8 + RULE.after_s, abs=1e-3)


def test_speech_at_both_ends_of_a_recording():
    assert cut((1.0, 3.2)) == [(0.0, 3.2)]
    assert cut((1.0, 1.6), (0.0, 6.4), (1.0, 1.6))[-1][1] == 9.6


def test_short_gaps_are_joined_and_long_ones_are_left_out():
    gap = RULE.join_s - 0.1
    assert len(cut((1.0, 1.6), (0.0, gap), (1.0, 1.6), (0.0, gap), (1.0, 1.6))) == 1
    gap = RULE.join_s + RULE.before_s + RULE.after_s + 0.1
    assert len(cut((1.0, 1.6), (0.0, gap), (1.0, 1.6))) == 2


def test_neighbours_are_joined_only_up_to_the_longest_piece():
    found = cut(*[(1.0, 4.0), (0.0, 0.6)] * 5, max_seconds=10.0)
    assert [round(start / 4.6) for start, _ in found] == [0, 2, 4]
    for _, end in found:
        assert end % 4.6 == pytest.approx(4.0 + RULE.after_s, abs=0.1)


def test_long_speech_is_cut_where_it_is_quietest():
    told, n = script((1.0, 50.0))
    samples = noise(n)
    samples[25 * 16_000 : 25 * 16_000 + 6400] = 0.0
    first, second = spans(pieces_of([samples], 30.0, Told(told)))
    assert first[1] == second[0] == pytest.approx(25.2 * 16_000, abs=1000)
    assert second[1] == n


@pytest.mark.parametrize("detector", [None, Told([1.0] * 999)])
def test_each_piece_is_normalised_by_its_own_peak(detector):
    samples = noise(10 * 16_000)
    samples[5 * 16_000] = 8.0
    before = samples.copy()
    pieces = list(pieces_of([samples], 4.0, detector))
    peaks = [float(np.abs(piece.samples).max()) for piece in pieces]
    assert sum(peak == 1.0 for peak in peaks) == 1
    assert all(peak < 0.6 or peak == 1.0 for peak in peaks)
    np.testing.assert_array_equal(samples, before)


@pytest.mark.parametrize("limit", [0.99, 0, float("nan"), float("inf")])
def test_wrong_limits(limit):
    with pytest.raises(RequestError, match="max_seconds must be at least"):
        list(pieces_of([], limit, None))


@pytest.mark.parametrize("told", [0.0, 1.0, None])
def test_memory_is_that_of_a_piece_or_two(told):
    """Twenty minutes of silence, of speech, and without a detector: whole they would be 77 MB."""
    seconds = 1200
    detector = None if told is None else Told(told for _ in range(seconds * 32))
    second = noise(16_000)
    tracemalloc.start()
    total = sum(p.samples.size for p in pieces_of((second for _ in range(seconds)), 10, detector))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == (0 if told == 0.0 else seconds * 16_000)
    assert peak < 8 * 10 * 64_000
