"""Names and codes of the languages that can be recognised.

The names are those the recognition models were trained to write and to be told. Codes are ISO 639
of parts 1, 2 (both forms) and 3; a region or script behind one ("en-US", "zh_Hans") is dropped,
with one exception: Hong Kong and Macau. "zh-HK" and "zh-MO" in speech software mean what is
spoken there, Cantonese, unless the tag itself says Mandarin ("zh-cmn-HK").
"""

from __future__ import annotations

import re

from stapes.errors import RequestError

# Name -> codes, the usual one first (part 1 where there is one). Behind them come parts 2/B, 2/T
# and 3, the main member of a macrolanguage, and withdrawn codes still in use ("in", "tl").
_CODES: dict[str, str] = {
    "Chinese": "zh chi zho cmn",
    "English": "en eng",
    "Cantonese": "yue",
    "Arabic": "ar ara arb",
    "German": "de ger deu",
    "French": "fr fre fra",
    "Spanish": "es spa",
    "Portuguese": "pt por",
    "Indonesian": "id ind in",
    "Italian": "it ita",
    "Korean": "ko kor",
    "Russian": "ru rus",
    "Thai": "th tha",
    "Vietnamese": "vi vie",
    "Japanese": "ja jpn",
    "Turkish": "tr tur",
    "Hindi": "hi hin",
    "Malay": "ms may msa zsm zlm",
    "Dutch": "nl dut nld",
    "Swedish": "sv swe",
    "Danish": "da dan",
    "Finnish": "fi fin",
    "Polish": "pl pol",
    "Czech": "cs cze ces",
    "Filipino": "fil tl tgl",
    "Persian": "fa per fas pes",
    "Greek": "el gre ell",
    "Romanian": "ro rum ron",
    "Hungarian": "hu hun",
    "Macedonian": "mk mac mkd",
}

LANGUAGES: tuple[str, ...] = tuple(_CODES)
"""The names, most spoken first as the models' documentation lists them."""

# Other names that ISO 639 or common use give the same language.
_OTHER_NAMES = {
    "mandarin": "Chinese",
    "castilian": "Spanish",
    "flemish": "Dutch",
    "farsi": "Persian",
    "tagalog": "Filipino",
    "yue chinese": "Cantonese",
    "mandarin chinese": "Chinese",
}

_BY_CODE = {code: name for name, codes in _CODES.items() for code in codes.split()}
_BY_NAME = {name.lower(): name for name in LANGUAGES} | _OTHER_NAMES
_CANTONESE_SUBTAGS = {"yue", "hk", "mo"}
_TAG = re.compile(r"[a-z]{2,3}(-[a-z0-9]{1,8})*")


def canonical_language(value: str) -> str:
    """The model's name for a language given by name (any case), ISO 639 code or language tag.

    Raises RequestError, listing what is known, for everything else, "" included.
    """
    given = value.strip().lower()
    name = _BY_NAME.get(given) or _of_tag(given.replace("_", "-"))
    if name is None:
        known = ", ".join(f"{name} ({language_code(name)})" for name in LANGUAGES)
        raise RequestError(f"The language {value!r} is not known; known are {known}.")
    return name


def _of_tag(tag: str) -> str | None:
    """The language of a tag such as "en", "en-us" or "zh-hant-hk"."""
    if not _TAG.fullmatch(tag):
        return None
    primary, *subtags = tag.split("-")
    name = _BY_CODE.get(primary)
    # "cmn" as the primary subtag, or behind "zh", says Mandarin whatever the region.
    if primary == "zh" and "cmn" not in subtags and not _CANTONESE_SUBTAGS.isdisjoint(subtags):
        return "Cantonese"
    return name


def language_code(name: str) -> str:
    """The ISO 639-1 code of a language, or its part 3 code where part 1 has none (yue, fil).

    Takes whatever `canonical_language` takes. Raises RequestError as it does.
    """
    codes = _CODES.get(name) or _CODES[canonical_language(name)]
    return codes.split()[0]
