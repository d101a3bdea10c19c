"""The loop detector: endless repeats are found in bounded time, what people say survives."""

from __future__ import annotations

import random
import time

import pytest

from stapes.decoder import LoopDetector

LEAD = list(range(1000, 1010))


def run(ids: list[int]) -> tuple[int, int] | None:
    """How many ids were read when a loop was found, and how many to keep."""
    detector = LoopDetector()
    for read, token in enumerate(ids, start=1):
        kept = detector.feed(token)
        if kept is not None:
            return read, kept
    return None


@pytest.mark.parametrize("period", [1, 2, 3, 7, 20, 32])
@pytest.mark.parametrize("lead", [[], LEAD], ids=["at-once", "later"])
def test_a_pattern_without_end_is_found_and_kept_once(period: int, lead: list[int]):
    pattern = list(range(period))
    found = run(lead + pattern * 300)
    assert found is not None
    read, kept = found
    assert (lead + pattern * 300)[:kept] == lead + pattern
    assert read <= len(lead) + max(48, 8 * period)


@pytest.mark.parametrize(
    "spoken",
    [
        [7, 11] * 12,  # "no," a dozen times
        [7] * 12,
        [5] * 10,  # ten equal digits
        [5, 0] * 10 + [9] * 10,
        list(range(20)) * 7,  # a phrase of 20 tokens, seven times
        [1, 2, 3] * 15,
    ],
    ids=["no-comma", "no", "digits", "digits-after-digits", "phrase", "triple"],
)
def test_what_people_say_is_no_loop(spoken: list[int]):
    assert run(LEAD + spoken + LEAD) is None


def test_an_interrupted_pattern_starts_counting_anew():
    once = [1, 2] * 20
    assert run([*once, 9, *once, 9, *once]) is None


def test_random_ids_are_no_loop():
    draw = random.Random(0)
    assert run([draw.randrange(4) for _ in range(20_000)]) is None


def test_a_pattern_longer_than_the_limit_is_left_to_the_budget():
    assert run(list(range(33)) * 20) is None


def test_the_work_for_an_id_does_not_grow_with_the_answer():
    detector = LoopDetector()
    for token in range(60_000):
        detector.feed(token)
    started = time.perf_counter()
    for token in range(1000):
        detector.feed(token)
    assert time.perf_counter() - started < 1
