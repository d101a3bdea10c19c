"""An answer's ids -> text and language."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints import CONTROL
from stapes.models.qwen3_asr.postprocess import Answer, is_within_context, parse_answer
from stapes.text.languages import LANGUAGES
from stapes.text.tokenizer import Tokenizer, load_tokenizer
from text.bpe_folder import write_new_layout

TAG = CONTROL["<asr_text>"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(write_new_layout(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="module")
def parse(tokenizer: Tokenizer):
    def parse_parts(*parts: str | int, forced: str | None = None) -> Answer:
        """Parts: text, and control tokens by id."""
        ids = [i for p in parts for i in ([p] if isinstance(p, int) else tokenizer.encode(p))]
        return parse_answer(ids, tokenizer, TAG, forced)

    return parse_parts


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_tag_names_the_language_and_is_no_text(parse, name: str):
    assert parse(f"language {name}", TAG, "hello there") == Answer("hello there", name, False)


@pytest.mark.parametrize("text", ["", " ", "well", " 你好。"])
def test_a_language_called_none_is_none(parse, text: str):
    assert parse("language None", TAG, text) == Answer(text.strip(), None, False)


@pytest.mark.parametrize(
    "text",
    [
        "no tag at all",
        "language is hard",
        "language Klingon",
        "language in use",
        "English",
        "Sprache",
        "the language English",
        "",
    ],
)
def test_without_a_tag_everything_is_text(parse, text: str):
    assert parse(text) == Answer(text, None, False)


def test_an_empty_head_names_no_language(parse):
    assert parse(TAG, "hello") == Answer("hello", None, False)
    assert parse(TAG) == Answer("", None, False)


def test_the_tag_spelled_out_later_is_speech(parse):
    spelled = "he said language German<asr_text> and <|im_end|> aloud"
    assert parse("language English", TAG, spelled) == Answer(spelled, "English", False)
    assert parse(spelled) == Answer(spelled, None, False)


def test_only_the_first_tag_counts(parse):
    answer = parse("language English", TAG, "one ", TAG, "two")
    assert answer == Answer("one two", "English", False)


@pytest.mark.parametrize("repeated", ["German", "English", "None"])
def test_with_a_forced_language_a_repeated_tag_is_no_text(parse, repeated: str):
    answer = parse(f"language {repeated}", TAG, "guten Tag", forced="German")
    assert answer == Answer("guten Tag", "German", False)


@pytest.mark.parametrize("text", ["guten Tag", "language German", "language", "Language English."])
def test_with_a_forced_language_all_else_is_text(parse, text: str):
    assert parse(text, forced="German") == Answer(text, "German", False)


def test_with_a_forced_language_speech_before_a_stray_tag_is_kept(parse):
    assert parse("guten ", TAG, "Tag", forced="German") == Answer("guten Tag", "German", False)


def test_a_language_that_is_not_known_is_the_models_own_word(parse):
    assert parse("language Klingon", TAG, "qapla") == Answer("qapla", "Klingon", False)


@pytest.mark.parametrize(
    ("cut", "language"),
    [
        ("language", None),
        ("language ", None),
        ("language E", None),
        ("language Engl", None),
        ("language English", "English"),
        ("language None", None),
        ("language No", None),
    ],
)
def test_a_tag_cut_off_by_the_budget_is_no_text(parse, cut: str, language: str | None):
    assert parse(cut) == Answer("", language, False)


@pytest.mark.parametrize("head", ["language english", " language English ", "language  English"])
def test_tags_written_carelessly_are_tags(parse, head: str):
    assert parse(head, TAG, "x") == Answer("x", "English", False)


def test_other_control_tokens_leave_no_mark(parse):
    pad, end = CONTROL["<|audio_pad|>"], CONTROL["<|im_end|>"]
    assert parse("language English", TAG, "a", pad, "b", end) == Answer("ab", "English", False)


def test_an_answer_cut_within_a_character_is_still_text(parse, tokenizer: Tokenizer):
    ids = [*tokenizer.encode("language Chinese"), TAG, *tokenizer.encode("ab🦉")]
    answer = parse_answer(ids[:-2], tokenizer, TAG)
    assert answer.language == "Chinese"
    assert answer.text.startswith("ab")
    assert parse_answer(ids, tokenizer, TAG).text == "ab🦉"


def test_endless_repeats_collapse_and_say_so(parse):
    answer = parse("language English", TAG, "well " + "so " * 30)
    assert answer.collapsed
    assert answer.text.count("so") == 1
    assert not parse("language English", TAG, "no, " * 12).collapsed


def test_an_empty_answer(parse):
    assert parse() == Answer("", None, False)
    assert parse(forced="German") == Answer("", "German", False)


@pytest.mark.parametrize(
    ("text", "context", "copied"),
    [
        ("Ada Lovelace", "Ada Lovelace, Grace Hopper", True),
        ("ada lovelace.", "Ada Lovelace, Grace Hopper", True),
        ("Lovelace, Grace", "Ada Lovelace, Grace Hopper", True),
        ("Ada Hopper", "Ada Lovelace, Grace Hopper", False),
        ("Ada Lovelace spoke", "Ada Lovelace, Grace Hopper", False),
        ("race", "Grace", False),
        ("", "Ada", False),
        ("...", "Ada", False),
        ("Ada", "", False),
    ],
)
def test_a_transcript_copied_from_the_context_is_noticed(text: str, context: str, copied: bool):
    assert is_within_context(text, context) is copied


def test_token_folder_is_ours(tokenizer: Tokenizer, tmp_path: Path):
    """The tests above need the tag to be a token and its spelling to be none."""
    assert TAG not in tokenizer.encode("<asr_text>")
    assert tokenizer.token_id("<asr_text>") == TAG
