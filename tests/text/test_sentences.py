"""Text into pieces to be spoken: nothing lost, nothing too long, cut where one breathes."""

# ruff: noqa: RUF001 (punctuation of all scripts looks alike, and is meant)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stapes.errors import RequestError
from stapes.text.sentences import WIDE, sentences, speech_pieces, spoken_length


@pytest.mark.parametrize(
    "found",
    [
        ["Hello there.", "How are you?", "Fine!"],
        ["Dr. Smith paid $3.14 to J. R. Smith at example.org.", "He left at 5 p.m. on Monday!"],
        ["Really?!", '"Yes."', "He said so."],
        ["The U.S. is big.", "See e.g. this, i.e. that, etc. and so on.", "Next, etc.", "Done."],
        ["Wait... what?", "Well... so be it."],
        ["Am 3. Oktober war es z. B. schön.", "Gut."],
        ["1. First thing.", "2. Second thing."],
        ["今天天气很好。", "我们去公园吧！", "好吗？"],
        ["「はい。」", "と言いました。"],
        ["यह एक वाक्य है।", "दूसरा वाक्य।"],
        ["هل أنت بخير؟", "نعم.", "شكرا"],
        ["Բարեւ։", "Ինչպես ես։"],
        ["no punctuation at all"],
    ],
)
def test_sentences_of_all_scripts(found):
    joined = " ".join(found)
    assert sentences(joined) == found


def test_scripts_without_spaces_need_none():
    assert sentences("今天很好。我们走吧！") == ["今天很好。", "我们走吧！"]


def test_an_empty_line_ends_a_sentence_and_a_line_break_does_not():
    assert sentences("A title\n\n The first\nline.  Two.\n \nEnd") == [
        "A title",
        "The first line.",
        "Two.",
        "End",
    ]
    assert sentences(" \n\n ") == []


def test_short_sentences_are_put_together():
    assert speech_pieces("One. Two. Three. Four.", 12) == ["One. Two.", "Three. Four."]
    assert speech_pieces("好。好。好。好。好。", 18) == ["好。好。好。", "好。好。"]


def test_a_long_sentence_is_cut_behind_clauses_then_between_words_then_anywhere():
    text = "It rained, as it had for 3,5 days; nobody minded at all."
    assert speech_pieces(text, 30) == [
        "It rained,",
        "as it had for 3,5 days;",
        "nobody minded at all.",
    ]
    assert speech_pieces("one two three four five", 10) == ["one two", "three four", "five"]
    assert speech_pieces("a" * 25, 10) == ["a" * 10, "a" * 10, "a" * 5]


def test_marks_stay_with_their_letters():
    letters = "e\u0301" * 12
    pieces = speech_pieces(letters, 10)
    assert "".join(pieces) == letters
    assert not any(piece.startswith("\u0301") for piece in pieces)


def test_wide_characters_count_threefold():
    assert spoken_length("ab好") == 2 + WIDE
    with pytest.raises(RequestError, match="10 characters or more, not 9"):
        speech_pieces("a", 9)


@given(st.text(alphabet="ab .,!?。好३\n\u0301'", max_size=120), st.integers(10, 40))
def test_nothing_is_lost_and_nothing_is_too_long(text, longest):
    pieces = speech_pieces(text, longest)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    marks = text.count("\u0301")  # may hang over
    assert all(spoken_length(piece) <= longest + marks for piece in pieces)
    assert all(piece == piece.strip() != "" for piece in pieces)


def test_a_book_takes_no_time():
    text = "It was a dark night, Dr. Who said. " * 10_000
    assert len(speech_pieces(text, 200)) == pytest.approx(len(text) / 200, rel=0.2)
