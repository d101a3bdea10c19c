"""Words for an aligner: what the model is given, what is shown, and that nothing is lost."""

# ruff: noqa: RUF001

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stapes.text.words import alignable_words

ODD = "ab'\u2019'1.-—…¿«»“( )\n\r\t\u2028\u00a0漢々かカー。、「」한글กำ\u0301\u3099\ufe0f\u200d👩é"
TEXTS = st.text(st.sampled_from(ODD), max_size=40) | st.text(max_size=40)


def spelled(text: str) -> list[str]:
    return [word.spelled for word in alignable_words(text)]


def shown(text: str) -> list[str]:
    return [word.shown for word in alignable_words(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world!", ["Hello", "world"]),
        ("  well-known   3.5% ", ["wellknown", "35"]),
        ("They're 'tis rock 'n' roll", ["They're", "'tis", "rock", "'n'", "roll"]),
        ("don\u2019t l\u2019homme \u2019quoted\u2019", ["don't", "l'homme", "quoted"]),
        ("a ' b — c ...", ["a", "b", "c"]),
        ("Größe naïve Ελλάδα русский", ["Größe", "naïve", "Ελλάδα", "русский"]),
        ("cafe\u0301 ❤\ufe0f", ["cafe\u0301"]),
        ("你好，世界。", ["你", "好", "世", "界"]),
        ("我用Python3写code", ["我", "用", "Python3", "写", "code"]),
        ("人々と𠮷野家", ["人", "々", "と", "𠮷", "野", "家"]),
        ("東京タワーへ行った", ["東", "京", "タワー", "へ", "行", "った"]),
        ("らーめん、はい。ＡＢＣです", ["らーめん", "はい", "ＡＢＣ", "です"]),
        ("か\u3099き", ["か\u3099き"]),
        ("안녕하세요, 세계!", ["안녕하세요", "세계"]),
        ("สวัสดีชาวโลก", ["สวัสดีชาวโลก"]),
        ("<timestamp> <|im_end|>", ["timestamp", "imend"]),
        ("葛\U000e0100城", ["葛", "城"]),
        ("... ' — 👩", []),
        ("", []),
    ],
)
def test_what_the_model_is_given(text: str, words: list[str]):
    assert spelled(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"Hello," she said.', ['"Hello,"', "she", "said."]),
        ("(One) [two] {three}", ["(One)", "[two]", "{three}"]),
        ("Il dit « oui » !", ["Il", "dit", "« oui » !"]),
        ("Hola. ¿Qué? ¡Sí!", ["Hola.", "¿Qué?", "¡Sí!"]),
        ("yes - no", ["yes -", "no"]),
        ("Yes.\n- No.\r\n- Yes.", ["Yes.", "- No.", "- Yes."]),
        ("你好，「世界」。", ["你", "好，", "「世", "界」。"]),
        ("“你”“我”", ["“你”", "“我”"]),
        ("… well-known …", ["… well-known …"]),
        ("don\u2019t 5 %", ["don\u2019t", "5 %"]),
    ],
)
def test_punctuation_stays_with_its_word(text: str, words: list[str]):
    assert shown(text) == words


def without_space(text: str) -> str:
    return "".join(text.split())


def letters(text: str) -> list[str]:
    return [c for c in text if unicodedata.category(c)[0] in "LN"]


@given(TEXTS)
def test_the_words_show_the_text_and_nothing_else(text: str):
    words = alignable_words(text)
    joined = "".join(word.shown for word in words)
    assert without_space(joined) == (without_space(text) if letters(text) else "")
    assert all(word.shown == word.shown.strip() and word.shown in text for word in words)


@given(TEXTS)
def test_every_letter_is_given_once_and_in_its_word(text: str):
    words = alignable_words(text)
    assert letters("".join(word.spelled for word in words)) == letters(text)
    for word in words:
        assert letters(word.spelled) == letters(word.shown)
        assert letters(word.spelled)
        assert not any(map(str.isspace, word.spelled))
