"""Subtitles keep the rules whatever is said, lose nothing, and break where a reader would."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from output.transcripts import letters, texts, timed, transcript, transcripts
from stapes.models.transcript import Segment, Transcript, Word
from stapes.output.characters import clusters, columns
from stapes.output.cues import Cue, cues_of


def shown(*segments: Segment, duration_s: float = 60.0) -> list[tuple[str, ...]]:
    return [cue.lines for cue in cues_of(transcript(*segments, duration_s=duration_s))]


def assert_rules(said: Transcript, cues: list[Cue]) -> None:
    last_ms = said.duration_s * 1000 + 0.001
    for cue in cues:
        assert 1 <= len(cue.lines) <= 2
        assert all(line == line.strip() and line and len(line.splitlines()) == 1
                   for line in cue.lines)  # fmt: skip
        assert all(columns(line) <= 42 for line in cue.lines)
        assert 0 <= cue.start_ms < cue.end_ms <= last_ms
        assert cue.end_ms - cue.start_ms <= 7000
    following = [*(cue.start_ms for cue in cues[1:]), int(last_ms)]
    for cue, start_ms in zip(cues, following, strict=False):
        assert cue.end_ms <= start_ms
        assert cue.end_ms - cue.start_ms >= 1000 or cue.end_ms == start_ms


@given(transcripts())
def test_the_rules_hold_and_nothing_is_lost(said):
    cues = cues_of(said)
    assert_rules(said, cues)
    lines = "".join(line for cue in cues for line in cue.lines)
    assert letters(lines) == letters("".join(segment.text for segment in said.segments))


@settings(max_examples=50)
@given(texts("abcdefgh.,", "abc"))
def test_words_stay_whole_and_lines_have_42_characters(text):
    lines = [line for cue in cues_of(transcript(Segment(0, 50, text))) for line in cue.lines]
    assert max(map(len, lines), default=0) <= 42
    if max(map(len, text.split()), default=0) <= 42:
        assert " ".join(lines) == text


@settings(max_examples=50)
@given(texts("漢字仮名ひらカナ。、「」"))
def test_chinese_and_japanese_have_16_characters(text):
    lines = shown(Segment(0, 50, text.replace(" ", "")))
    assert max((len(line) for cue in lines for line in cue), default=0) <= 16


@given(st.lists(st.floats(0, 20), min_size=1, max_size=40), st.data())
def test_a_cue_begins_with_its_first_word(starts, data):
    """Words of 0.1 s at any times in order; none is shown before it is spoken."""
    starts = sorted(starts)
    words = tuple(Word(f"w{k}", t, t + 0.1) for k, t in enumerate(starts))
    said = transcript(Segment(0, 21, " ".join(word.text for word in words), words=words))
    spoken = {word.text: round(word.start_s * 1000) for word in words}
    for cue in cues_of(said):
        first = spoken[cue.lines[0].split()[0]]
        assert first <= cue.start_ms <= first + len(words)  # 1 ms later when words coincide


def test_times_of_a_segment_without_words_are_its_own():
    assert cues_of(transcript(Segment(1.5, 4.25, "one two"))) == [Cue(1500, 4250, ("one two",))]


def test_a_time_that_floats_cannot_hold_is_not_cut_short():
    assert 1.001 * 1000 < 1001
    (cue,) = cues_of(transcript(Segment(0, 1.001, "one"), duration_s=1.001))
    assert cue.end_ms == 1001


def test_a_text_without_segments_is_shown_from_the_beginning():
    assert cues_of(transcript(text="one two", duration_s=3.0)) == [Cue(0, 3000, ("one two",))]
    assert cues_of(transcript(text=" \n")) == []


def test_a_segment_is_one_cue_where_the_rules_permit():
    text = "It rained. It rained again. We had no umbrella, and nobody else had."
    assert len(shown(Segment(0, 7, text))) == 1
    assert len(shown(Segment(0, 7.5, text))) == 2


def test_without_words_the_time_is_shared_out_by_characters():
    cues = cues_of(transcript(Segment(10, 20, "a" * 40 + ". " + "b" * 58)))
    assert [(cue.start_ms, cue.end_ms) for cue in cues] == [(10_000, 14_100), (14_200, 20_000)]


def test_words_give_the_times_and_pauses_the_breaks():
    first, second = Word("one,", 1.0, 1.4), Word("two", 3.0, 3.3)
    said = transcript(Segment(0.9, 3.4, "one, two", words=(first, second)))
    assert cues_of(said) == [Cue(1000, 2000, ("one,",)), Cue(3000, 4000, ("two",))]


def test_a_short_pause_does_not_break():
    first, second = Word("one,", 1.0, 1.4), Word("two", 1.8, 2.3)
    said = transcript(Segment(0.9, 3.4, "one, two", words=(first, second)))
    assert cues_of(said) == [Cue(1000, 2300, ("one, two",))]


def test_sentences_are_kept_apart():
    text = "We came late. The others had been waiting for an hour. Nobody said a word about it."
    assert shown(timed(text, pause_s=0.9)) == [
        ("We came late.",),
        ("The others had been waiting for an hour.",),
        ("Nobody said a word about it.",),
    ]


def test_a_line_ends_with_a_clause_and_lines_are_even():
    text = "When the rain had stopped at last, we went out into the garden"
    assert shown(timed(text)) == [
        ("When the rain had stopped at last,", "we went out into the garden")
    ]
    text = "the man who had been standing there for hours went away"
    assert shown(timed(text)) == [("the man who had been standing", "there for hours went away")]


def test_nothing_is_shown_for_more_than_7_s():
    assert cues_of(transcript(Segment(2, 30, "yes"))) == [Cue(2000, 9000, ("yes",))]
    long = Word("yes", 2.0, 30.0)
    assert cues_of(transcript(Segment(2, 30, "yes", words=(long,))))[0].end_ms == 9000


def test_a_short_cue_takes_the_room_that_is_there():
    yes, no, so = Segment(1, 1.2, "yes"), Segment(1.5, 1.6, "no"), Segment(9.5, 9.7, "so")
    cues = cues_of(transcript(yes, no, so, duration_s=10.0))
    assert [(cue.start_ms, cue.end_ms) for cue in cues] == [
        (1000, 1500), (1500, 2500), (9500, 10_000),
    ]  # fmt: skip


def test_words_at_one_time_and_behind_the_end():
    words = tuple(Word("w" * 40, 5.0, 5.0) for _ in range(6))
    said = transcript(Segment(0, 5, " ".join(w.text for w in words), words=words), duration_s=5.0)
    cues = cues_of(said)
    assert_rules(said, cues)
    assert len(cues) == 3
    assert cues[-1].end_ms == 5000


def test_a_recording_too_short_for_its_text_is_no_error():
    cues = cues_of(transcript(Segment(0, 0, "word " * 90), duration_s=0.0))
    assert {(cue.start_ms, cue.end_ms) for cue in cues} == {(0, 0)}


@pytest.mark.parametrize(
    "words",
    [
        (Word("one", 4.0, 4.5),),  # "two" is left out
        (Word("two", 4.0, 4.5),),
        (Word("two", 4.0, 4.5), Word("one", 4.5, 5.0)),
        (Word("three", 4.0, 4.5),),
    ],
)
def test_words_that_do_not_spell_the_text_do_not_count(words):
    assert cues_of(transcript(Segment(3, 6, "one two", words=words))) == [
        Cue(3000, 6000, ("one two",))
    ]


def test_punctuation_that_no_word_holds_stays_where_it_was():
    words = (Word("one", 1.0, 2.0), Word("two", 5.0, 6.0))
    text = "«one», «two»."
    cues = cues_of(transcript(Segment(0, 9, text, words=words)))
    assert cues == [Cue(1000, 2000, ("«one»,",)), Cue(5000, 6000, ("«two».",))]


def test_words_of_a_script_without_spaces_are_not_torn():
    words = ["เมื่อเรา", "ดูตัวเลข", "อีกครั้ง", "เราพบว่า", "ความแตกต่าง", "ส่วนใหญ่", "มาจาก", "การวัด"]
    spans = tuple(Word(w, k * 0.4, k * 0.4 + 0.4) for k, w in enumerate(words))
    ((first, second),) = shown(Segment(0, 3.2, "".join(words), words=spans))
    assert first in {"".join(words[:k]) for k in range(len(words))}
    assert first + second == "".join(words)


def test_chinese_breaks_behind_its_punctuation():
    assert shown(Segment(0, 6, "我们再看这些数字的时候\uff0c发现大部分差异来自一次测量。")) == [
        ("我们再看这些数字的时候\uff0c", "发现大部分差异来自一次测量。")
    ]


def test_no_line_begins_with_what_ends_a_word():
    for text in ("かー" * 17, "かっ" * 17):
        (first, second) = shown(Segment(0, 10, text))
        assert {line[0] for line in first + second} == {"か"}
    (first, second) = shown(Segment(0, 10, "かっ「" * 11))
    assert {line[0] for line in first + second} <= {"か", "「"}
    assert "「" not in {line[-1] for line in (first + second)[:-1]}


def test_a_mark_that_stands_apart_begins_no_line():
    assert shown(
        Segment(0, 5, "the nightingales of Lincolnshire - and all others, too, at night")
    ) == [("the nightingales of Lincolnshire -", "and all others, too, at night")]


def test_a_sentence_ends_behind_its_quotes():
    assert shown(Segment(0, 5, '"We said (so)." Then he left the old house at')) == [
        ('"We said (so)."', "Then he left the old house at")
    ]


def test_a_word_without_width_takes_a_space_of_its_own():
    said = transcript(Segment(0, 5, "\u0301 " + "a" * 42 + " " + "b" * 42))
    assert [columns(line) for cue in cues_of(said) for line in cue.lines] == [0, 42, 42]


def test_control_characters_are_spaces():
    assert shown(Segment(0, 5, "\x00one\x1b[2J\x7ftwo\x85")) == [("one [2J two",)]


def test_a_bracket_is_opened_on_a_new_line():
    assert shown(Segment(0, 5, "with instruments that nobody knew (the old ones)")) == [
        ("with instruments that nobody knew", "(the old ones)")
    ]


def test_cues_that_must_be_divided_are_even():
    first, second = shown(Segment(0, 7, "words " * 17))
    assert {len(" ".join(first).split()), len(" ".join(second).split())} == {8, 9}


def test_korean_is_broken_at_spaces():
    text = "우리는 대부분의 차이가 단 한 번의 측정에서 왔다"
    assert " ".join(line for cue in shown(Segment(0, 5, text)) for line in cue) == text


def test_an_endless_word_is_cut_between_characters():
    family = "👩\u200d👩\u200d👧"
    (cue,) = shown(Segment(0, 5, family * 35))
    assert [len(line) for line in cue] == [21 * 5, 14 * 5]
    (cue,) = shown(Segment(0, 5, "e\u0301" * 80))
    assert [len(line) for line in cue] == [84, 76]


def test_no_break_space_holds():
    text = "C'est tout ce que nous avons pu trouver\u00a0? Oui."
    lines = shown(Segment(0, 5, text))[0]
    assert lines == ("C'est tout ce que nous", "avons pu trouver\u00a0? Oui.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e\u0301a", ["e\u0301", "a"]),
        ("🇫🇷🇩🇪", ["🇫🇷", "🇩🇪"]),
        ("👍🏽!", ["👍🏽", "!"]),
        ("กำ", ["กำ"[0], "กำ"[1]]),
        ("", []),
    ],
)
def test_clusters(text, expected):
    assert list(clusters(text)) == expected


@pytest.mark.parametrize(
    ("text", "width"),
    [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("한", 2), ("👩\u200d👧", 2), ("ﾊ", 1)],
)
def test_columns(text, width):
    assert columns(text) == width


@given(st.text())
def test_clusters_are_the_text(text):
    assert "".join(clusters(text)) == text


def test_an_hour_is_quick_and_the_cues_of_a_segment_do_not_depend_on_the_others():
    text = "We came late. The others had been waiting for an hour, and it rained all the time."
    alone = [cue.lines for cue in cues_of(transcript(timed(text)))]
    many = [timed(text, k * 10.0) for k in range(360)]
    cues = cues_of(transcript(*many, duration_s=3600.0))
    assert [cue.lines for cue in cues] == alone * 360
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(cues))
