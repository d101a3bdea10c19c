"""Cutting at quiet points: exact cover, bounds, and where the cuts fall."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from audio import sounds
from stapes.audio import Span, split_at_quiet
from stapes.errors import RequestError


def noise(seconds, level=0.1, seed=0):
    n = int(seconds * 16_000)
    return np.random.default_rng(seed).normal(0, level, n).astype(np.float32)


@given(n=st.integers(1, 200_000), max_seconds=st.floats(1.0, 5.0), seed=st.integers(0, 99))
@example(n=16_000, max_seconds=1.0, seed=0)
@example(n=16_001, max_seconds=1.0, seed=0)
@example(n=21_333, max_seconds=1.0, seed=0)
@example(n=21_334, max_seconds=1.0, seed=0)
@example(n=32_000, max_seconds=1.0, seed=0)
def test_the_spans_cover_everything_once_and_none_is_too_long_or_tiny(n, max_seconds, seed):
    samples = noise(n / 16_000 + 1, seed=seed)[:n]
    spans = split_at_quiet(samples, max_seconds)
    assert spans[0].start == 0
    assert spans[-1].end == n
    assert all(a.end == b.start for a, b in pairwise(spans))
    lengths = [span.end - span.start for span in spans]
    assert max(lengths) <= max_seconds * 16_000
    if len(spans) > 1:
        assert min(lengths) >= max_seconds * 16_000 / 3 - 160
    assert spans == split_at_quiet(samples, max_seconds)


@pytest.mark.parametrize("seconds", [0.1, 29.99, 30.0])
def test_short_recordings_are_one_piece(seconds):
    n = int(seconds * 16_000)
    assert split_at_quiet(np.zeros(n, np.float32)) == [Span(0, n)]


def test_nothing_is_no_piece():
    assert split_at_quiet(np.zeros(0, np.float32)) == []


@pytest.mark.parametrize("pause", [21.0, 24.5, 29.0])
@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_the_pause_is_found_whatever_the_offset(pause, offset):
    samples = noise(70) + np.float32(offset)
    at = int(pause * 16_000)
    samples[at : at + 6400] = offset
    cut = split_at_quiet(samples)[0].end
    assert at < cut < at + 6400
    assert abs(cut - (at + 3200)) <= 960  # near the middle of its 0.4 s


def test_one_quiet_moment_is_no_pause():
    samples = noise(60)
    samples[25 * 16_000 :][:320] = 0.0  # 20 ms, as within a word
    samples[22 * 16_000 :][:8000] *= 0.1
    assert 22 * 16_000 <= split_at_quiet(samples)[0].end <= 22 * 16_000 + 8000


@pytest.mark.parametrize("seconds", [30.01, 31.0, 39.9, 40.1, 59.0, 60.0, 61.0, 90.5])
@pytest.mark.parametrize("make", [lambda s: np.zeros(int(s * 16_000), np.float32), noise])
def test_no_tiny_last_piece(seconds, make):
    spans = split_at_quiet(make(seconds))
    assert spans[-1].end - spans[-1].start > 9.9 * 16_000


def test_silence_is_cut_into_long_pieces():
    spans = split_at_quiet(np.zeros(16_000 * 95, np.float32))
    assert [span.end / 16_000 for span in spans[:2]] == [30.0, 60.0]


def test_ninety_seconds_without_a_pause():
    samples = sounds.tone(90.0).astype(np.float32)
    spans = split_at_quiet(samples)
    assert 3 <= len(spans) <= 5
    assert sum(span.end - span.start for span in spans) == samples.size


def test_cuts_lie_on_the_frames_of_the_mel():
    assert all(span.start % 160 == 0 for span in split_at_quiet(noise(123.456)))


def test_the_cost_is_linear():
    hour = np.tile(noise(60), 60)
    start = time.process_time()
    assert len(split_at_quiet(hour)) >= 120
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize("max_seconds", [0.99, 0, -1, float("nan"), float("inf")])
def test_wrong_limits(max_seconds):
    with pytest.raises(RequestError, match="max_seconds must be at least"):
        split_at_quiet(noise(1), max_seconds)
    with pytest.raises(RequestError, match="shape"):
        split_at_quiet(np.zeros((2, 100), np.float32))
