from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stapes.errors import RequestError
from stapes.text.languages import LANGUAGES, canonical_language, language_code

EXPECTED = {
    "Chinese": "zh chi zho cmn zh-CN zh_TW zh-Hans zh-Hant-TW zh-SG zh-cmn-HK CHINESE Mandarin",
    "English": "en EN eng en-US en_gb en-Latn-US English english ENGLISH",
    "Cantonese": "yue yue-HK yue-Hant-HK zh-yue zh-HK zh_MO zh-Hant-HK Cantonese",
    "Arabic": "ar ara ar-EG",
    "German": "de ger deu de-AT",
    "French": "fr fre fra fr-CA",
    "Spanish": "es spa es-419",
    "Portuguese": "pt por pt-BR",
    "Indonesian": "id ind",
    "Italian": "it ita",
    "Korean": "ko kor",
    "Russian": "ru rus",
    "Thai": "th tha",
    "Vietnamese": "vi vie",
    "Japanese": "ja jpn ja_JP",
    "Turkish": "tr tur",
    "Hindi": "hi hin",
    "Malay": "ms may msa",
    "Dutch": "nl dut nld",
    "Swedish": "sv swe",
    "Danish": "da dan",
    "Finnish": "fi fin",
    "Polish": "pl pol",
    "Czech": "cs cze ces",
    "Filipino": "fil tl tgl fil-PH Tagalog",
    "Persian": "fa per fas fa-IR Farsi",
    "Greek": "el gre ell",
    "Romanian": "ro rum ron",
    "Hungarian": "hu hun",
    "Macedonian": "mk mac mkd",
}


def test_all_thirty_are_there():
    assert len(LANGUAGES) == 30
    assert set(EXPECTED) == set(LANGUAGES)


@pytest.mark.parametrize("name", LANGUAGES)
def test_codes_and_names(name: str):
    for value in [*EXPECTED[name].split(), f"  {name.lower()} "]:
        assert canonical_language(value) == name, value


@pytest.mark.parametrize("name", LANGUAGES)
def test_codes_lead_back(name: str):
    code = language_code(name)
    assert canonical_language(code) == name
    assert language_code(code.upper()) == code
    assert len(code) == (3 if name in ("Cantonese", "Filipino") else 2)


@pytest.mark.parametrize(
    "value", ["", "  ", "xx", "klingon", "en-", "-en", "e", "en US", "english-US", "en--US", "None"]
)
def test_the_unknown_is_an_error_that_lists_the_known(value: str):
    with pytest.raises(RequestError) as caught:
        canonical_language(value)
    assert repr(value) in str(caught.value)
    assert all(name in str(caught.value) for name in LANGUAGES)


def test_no_code_belongs_to_two_languages():
    codes = [code for values in EXPECTED.values() for code in values.split()]
    assert len(codes) == len(set(codes))


@given(value=st.text(max_size=12))
def test_any_text_is_a_language_or_a_bad_request(value: str):
    with contextlib.suppress(RequestError):
        assert canonical_language(value) in LANGUAGES
