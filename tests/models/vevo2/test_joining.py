"""Seams: nothing jumps, nothing is lost, nothing is said twice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from models.vevo2.tokenizer_checkpoint import melody
from stapes.models.vevo2.joining import (
    FADE,
    LONGEST_PIECE,
    OVERLAP,
    PAUSE,
    crossfaded,
    cuts,
    levelled,
    with_pauses,
)
from stapes.models.vevo2.voice import HOP


def tone(samples: int, phase: float = 0.0) -> np.ndarray:
    return (0.5 * np.cos(phase + np.arange(samples) / 20)).astype(np.float32)


def largest_jump(samples: np.ndarray) -> float:
    return float(np.abs(np.diff(samples)).max())


def test_pieces_fade_at_their_seams_alone():
    pieces = [tone(3000), tone(2000, 1.0), tone(2500, 2.0)]
    joined = list(with_pauses(iter(pieces), 3))
    assert [len(x) for x in joined] == [3000 + PAUSE, 2000 + PAUSE, 2500]
    whole = np.concatenate(joined)
    assert largest_jump(whole) <= max(map(largest_jump, pieces))
    assert largest_jump(np.concatenate(pieces)) > 10 * largest_jump(whole)  # so that it could fail
    np.testing.assert_array_equal(joined[0][: 3000 - FADE], pieces[0][: 3000 - FADE])
    np.testing.assert_array_equal(joined[1][FADE : 2000 - FADE], pieces[1][FADE : 2000 - FADE])
    np.testing.assert_array_equal(joined[2][FADE:], pieces[2][FADE:])
    assert not joined[1][2000:].any()


def test_one_piece_is_left_as_it_is():
    (only,) = with_pauses([tone(100)], 1)
    np.testing.assert_array_equal(only, tone(100))


def test_pieces_come_as_they_are_made():
    made = []

    def pieces():
        for i in range(3):
            made.append(i)
            yield tone(1000)

    joined = with_pauses(pieces(), 3)
    next(joined)
    assert made == [0]


def test_crossfading_what_agrees_changes_nothing():
    whole = tone(10_000)
    pieces = [whole[:4000], whole[3900:7000], whole[6900:]]
    mixed = np.concatenate(list(crossfaded(pieces, 100)))
    np.testing.assert_allclose(mixed, whole, atol=1e-6)


def test_crossfading_what_does_not_agree_jumps_nowhere():
    pieces = [tone(5000), tone(5000, np.pi / 2), tone(5000, np.pi)]
    mixed = np.concatenate(list(crossfaded(pieces, OVERLAP)))
    assert len(mixed) == 15_000 - 2 * OVERLAP
    assert largest_jump(mixed) <= 1.1 * max(map(largest_jump, pieces))


def test_a_recording_is_cut_where_it_is_quietest():
    samples = melody(70.0)
    samples[int(24.5 * 24_000) : int(24.8 * 24_000)] = 0
    places = cuts(samples)
    assert places[0][0] == 0
    assert places[-1][1] == len(samples)
    assert 24.5 < places[1][0] / 24_000 < 24.8
    for (start, stop), (following, _) in itertools.pairwise(places):
        assert stop - following == OVERLAP
        assert following % HOP == 0
        assert stop - start <= LONGEST_PIECE
    assert all(stop - start >= LONGEST_PIECE // 2 for start, stop in places)


@pytest.mark.parametrize("beyond", [0, 1, HOP, 24_000])
def test_a_recording_just_too_long(beyond):
    samples = melody(31.0)[: LONGEST_PIECE + beyond]
    places = cuts(samples)
    assert len(places) == (1 if beyond == 0 else 2)
    assert places[-1][1] == len(samples)
    assert all(stop - start <= LONGEST_PIECE for start, stop in places)


def test_level():
    samples = 0.01 * tone(24_000)
    rms = np.sqrt(np.mean(levelled(samples, -25.0) ** 2))
    assert 20 * np.log10(rms) == pytest.approx(-25, abs=0.01)
    assert levelled(samples, None) is samples
    click = np.zeros(24_000, np.float32)
    click[100] = 0.5
    assert levelled(click, -25.0).max() == pytest.approx(1.0)  # not beyond full scale
    assert not levelled(np.zeros(10, np.float32), -25.0).any()
