from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stapes.text.repetition import collapse_repetitions

KEPT = [
    "",
    "a" * 20,
    "no " * 12,
    "no " * 19,
    "zero " * 10,
    "ha" * 19,
    ("x" * 21 + "y" * 21)[10:31],
    "twenty-one characters" * 30,  # a period of 21 is the token detector's business
]


@pytest.mark.parametrize("text", KEPT)
def test_what_people_say_stays(text: str):
    assert collapse_repetitions(text) == (text, False)


COLLAPSED = {
    "one character": ("a" * 21, "a"),
    "within a text": ("so " + "a" * 500 + "nd so on", "so and so on"),
    "two characters": ("ha" * 20, "ha"),
    "words": ("well, " + "no " * 25 + "yes", "well, no yes"),
    "twenty characters": ("abcdefghij klmnopqr " * 2000, "abcdefghij klmnopqr "),
    "an incomplete last repeat stays": ("thank you " * 30 + "thank", "thank you thank"),
    "characters, then patterns": (("b" * 30 + "c") * 20, "bc"),
    "Chinese": ("好的" * 40 + "。", "好的。"),
    "line ends": ("\n" * 30 + "a\n" * 20, "\na\n"),
    "two places": ("ab" * 20 + " - " + "cd" * 20, "ab - cd"),
    "outside the BMP": ("😀" * 21, "😀"),
}


@pytest.mark.parametrize("case", COLLAPSED)
def test_what_collapses(case: str):
    text, expected = COLLAPSED[case]
    assert collapse_repetitions(text) == (expected, True)


def plainly(text: str) -> str:
    """The same rule, by the letter."""
    text = scan(text, range(1, 2), 21)
    return scan(text, range(2, 21), 20)


def scan(text: str, lengths: range, least: int) -> str:
    out, i = "", 0
    while i < len(text):
        size = next((k for k in lengths if text[i : i + k] * least == text[i : i + k * least]), 0)
        if size and i + size * least <= len(text):
            out += text[i : i + size]
            pattern = text[i : i + size]
            while text[i : i + size] == pattern:
                i += size
        else:
            out += text[i]
            i += 1
    return out


parts = st.tuples(st.text("abc", min_size=1, max_size=4), st.integers(1, 30))


@given(st.lists(parts, max_size=4))
def test_equals_the_rule_by_the_letter(repeats: list[tuple[str, int]]):
    text = "".join(part * times for part, times in repeats)
    expected = plainly(text)
    assert collapse_repetitions(text) == (expected, expected != text)


@pytest.mark.parametrize(
    "text",
    ["the quick brown fox " * 19 + "x" + "jumps over a lazy do" * 19, "ab" * 19 + "x"],
    ids=["long patterns", "short patterns"],
)
def test_near_misses_cost_linear_time(text: str):
    def seconds(length: int) -> float:
        long = (text * (length // len(text) + 1))[:length]
        start = time.perf_counter()
        collapse_repetitions(long)
        return time.perf_counter() - start

    assert seconds(160_000) < 40 * max(seconds(10_000), 1e-3)
