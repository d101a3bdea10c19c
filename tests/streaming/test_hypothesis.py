"""What is committed of an answer: whole words, whole characters, and never anything else later."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stapes.decoder import FinishReason, GenerateResult
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.streaming import StreamPolicy
from stapes.streaming.hypothesis import Asked, Hypothesis, common_prefix, is_loop, whole_words
from stapes.streaming.utterances import Task
from stapes.text.joining import word_ends_between

RATE = 16_000
EAGER = StreamPolicy(rollback_tokens=0, unfixed_steps=0, commit_steps=1)


class Letters:
    """A tokenizer whose ids are bytes."""

    def token_bytes(self, token: int) -> bytes:
        return bytes([token])


def answer(ids: Sequence[int], reason: FinishReason = "stop") -> GenerateResult:
    return GenerateResult(tuple(ids), reason, len(ids), 1)


def say(model: Qwen3Asr, text: str, language: str = "English") -> list[int]:
    encode = model.tokenizer.encode
    tag = model.tokenizer.token_id("<asr_text>")
    return [*encode(f"language {language}"), tag, *encode(text)]


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "ends"),
    [
        ("o", " ", True),
        ("o", "\n", True),
        ("o", "n", False),
        ("o", ",", False),
        ("1", "5", False),
        (".", " ", True),
        (" ", "n", False),
        (" ", " ", False),
        ("你", "好", True),
        ("你", "a", True),
        ("a", "你", True),
        ("a", "。", True),
        ("。", "你", True),
        ("か", "\u3099", False),  # a voicing mark of its own
        ("e", "\u0301", False),
        ("ก", "\u0e34", False),
        ("\u200d", "你", False),
        ("한", "국", False),
        ("한", " ", True),
    ],
)
def test_where_words_end(left: str, right: str, ends: bool):
    assert word_ends_between(left, right) == ends


@pytest.mark.parametrize(
    ("text", "limit", "words"),
    [
        ("one two three", 99, "one two"),
        ("one two three", 7, "one two"),
        ("one two three", 6, "one"),
        ("one two three", 2, ""),
        ("one", 99, ""),
        ("one ", 99, "one"),
        ("", 5, ""),
        ("你好吗", 99, "你好"),
        ("你好吗", 5, "你"),
        ("naïve café au", 99, "naïve café"),
        ("two  spaces", 99, "two"),
    ],
)
def test_whole_words(text: str, limit: int, words: str):
    ids = list(text.encode())
    count = whole_words(ids, limit, Letters())  # type: ignore[arg-type]
    assert bytes(ids[:count]).decode() == words


@given(st.binary(max_size=40), st.integers(0, 45))
def test_no_cut_lies_within_a_character_even_of_bytes_that_are_none(data: bytes, limit: int):
    count = whole_words(list(data), limit, Letters())  # type: ignore[arg-type]
    assert count <= limit
    whole = data.decode("utf-8", "replace")
    first = data[:count].decode("utf-8", "replace")
    assert whole.startswith(first)
    assert first == first.rstrip()


def test_common_prefix():
    assert common_prefix([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_prefix([1, 2], [1, 2, 3]) == 2
    assert common_prefix([], [1]) == 0


def test_a_loop_may_lie_across_answers():
    assert is_loop([7] * 60)
    assert not is_loop(list(range(60)))


# -- commits ---------------------------------------------------------------------------------------


def test_the_last_tokens_are_not_committed(model: Qwen3Asr):
    for rollback in (0, 1, 3):
        policy = StreamPolicy(rollback_tokens=rollback)
        hypothesis = Hypothesis(model, Asked(policy), 100)
        ids = say(model, "one two three")
        hypothesis.take(answer(ids), 500)
        settled = hypothesis.commit(500)
        assert settled is not None
        assert len(ids) - hypothesis.committed >= rollback
        assert settled.text in ("one two", "one")
        assert (settled.start, settled.end) == (100, 500)


def test_a_word_within_the_last_tokens_waits(model: Qwen3Asr):
    """One token more than the last word has: the word before it is not committed either."""
    last = len(model.tokenizer.encode(" three"))
    for rollback, text in ((last, "one two"), (last + 1, "one")):
        hypothesis = Hypothesis(model, Asked(StreamPolicy(rollback_tokens=rollback)), 0)
        hypothesis.take(answer(say(model, "one two three")), 1)
        settled = hypothesis.commit(1)
        assert settled is not None
        assert settled.text == text


def test_committed_ids_stay_and_the_rest_is_the_draft(model: Qwen3Asr):
    hypothesis = Hypothesis(model, Asked(EAGER), 0)
    first = say(model, "one two three")
    hypothesis.take(answer(first), 1)
    hypothesis.commit(1)
    assert hypothesis.forced_ids + hypothesis.draft == first
    rest = model.tokenizer.encode(" tree four")
    hypothesis.take(answer(rest), 2)
    settled = hypothesis.commit(2)
    assert settled is not None
    assert settled.text == " tree"
    assert hypothesis.partial() == " four"
    last = hypothesis.finish()
    assert last is not None
    assert last.text == " four"
    assert hypothesis.committed_text == "one two tree four"
    assert hypothesis.finish() is None


def test_agreement_waits_for_a_second_opinion(model: Qwen3Asr):
    policy = StreamPolicy(commit="agreement", rollback_tokens=0)
    hypothesis = Hypothesis(model, Asked(policy), 0)
    hypothesis.take(answer(say(model, "one two free four")), 1)
    assert hypothesis.commit(1) is None
    hypothesis.take(answer(say(model, "one two three four five")), 2)
    settled = hypothesis.commit(2)
    assert settled is not None
    assert settled.text == "one two"


def test_words_are_of_the_look_that_heard_them_first(model: Qwen3Asr):
    hypothesis = Hypothesis(model, Asked(EAGER), 0)
    hypothesis.take(answer(say(model, "one two")), 10)
    hypothesis.take(answer(say(model, "one two three")), 20)
    settled = hypothesis.commit(20)
    assert settled is not None
    assert (settled.text, settled.end) == ("one two", 10)


@pytest.mark.parametrize("language", ["None", "English"])
def test_a_tag_alone_is_no_text(model: Qwen3Asr, language: str):
    hypothesis = Hypothesis(model, Asked(EAGER), 0)
    hypothesis.take(answer(say(model, "", language)), 1)
    assert hypothesis.commit(1) is None
    assert hypothesis.partial() == ""
    assert hypothesis.finish() is None


def test_a_tag_that_is_cut_is_not_shown(model: Qwen3Asr):
    whole = say(model, "one two")
    first = len(model.tokenizer.encode("language"))
    last = whole.index(model.tokenizer.token_id("<asr_text>"))
    assert first < last
    for count in range(first, last + 2):
        hypothesis = Hypothesis(model, Asked(EAGER), 0)
        hypothesis.take(answer(whole[:count]), 1)
        assert hypothesis.partial() == ""
        assert hypothesis.commit(1) is None


def test_the_language_stays_once_text_is_committed(model: Qwen3Asr):
    hypothesis = Hypothesis(model, Asked(EAGER), 0)
    hypothesis.take(answer(say(model, "one two three")), 1)
    hypothesis.commit(1)
    tag = model.tokenizer.token_id("<asr_text>")
    hypothesis.take(answer([tag, *model.tokenizer.encode(" four")]), 2)
    assert hypothesis.language == "English"
    assert hypothesis.committed_text + hypothesis.partial() == "one two four"


def test_half_a_character_is_not_shown_but_at_the_end_it_is_told(model: Qwen3Asr):
    cut = next(
        ids[:-1]
        for ids in (say(model, f"one two {c}") for c in "🐙ἃ中日語")
        if model.tokenizer.decode(ids[:-1]).endswith("\ufffd")
    )
    hypothesis = Hypothesis(model, Asked(EAGER), 0)
    hypothesis.take(answer(cut), 1)
    assert hypothesis.partial() == "one two"
    settled = hypothesis.finish()
    assert settled is not None
    assert settled.text == "one two \ufffd"


def test_trouble_commits_nothing_and_says_why(model: Qwen3Asr):
    task = Task(0, 0, 32_000, 0, True)
    loop = Hypothesis(model, Asked(EAGER), 0)
    loop.take(answer(say(model, "one" + " two" * 60), "loop"), 1)
    assert loop.commit(1) is None
    assert loop.finish() is None
    assert loop.doubts(task) == [
        "0.0-2.0 s: the model repeated itself without end; it has no text."
    ]
    short = Hypothesis(model, Asked(EAGER), 0)
    short.take(answer(say(model, "one two"), "length"), 1)
    assert short.finish() is not None
    assert "cut short after" in short.doubts(task)[0]


def test_budgets_follow_the_audio(model: Qwen3Asr):
    hypothesis = Hypothesis(model, Asked(StreamPolicy()), 0)
    task = [Task(0, 0, n * 2 * RATE, n, n % 2 == 0) for n in range(1, 5)]
    assert hypothesis.budget(task[0]) == 32
    hypothesis.take(answer([5] * 20), task[0].end)
    assert hypothesis.budget(task[1]) == 64  # not the 20 of a look that may be left out
    hypothesis.take(answer([5] * 30), task[1].end)
    hypothesis.commit(task[1].end)
    assert hypothesis.budget(task[2]) == 30 + 32
    assert hypothesis.budget(task[3]) == 30 + 64
    assert hypothesis.budget(Task(0, 0, task[1].end, 0, True)) == 32 + 16 * 4
