"""Our tokenizer against transformers' Qwen2 tokenizer, on a byte-level BPE trained here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stapes.text.tokenizer import Tokenizer, load_tokenizer
from text.bpe_folder import NAMES, control_ids, write_new_layout, write_old_layout

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

LIGHT = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
PARTS = [
    "The ",
    "quick",
    "'S",
    "don't",
    "they'RE",
    "  ",
    "\n",
    "\r\n",
    "\t",
    " \n ",
    "12",
    "٣",
    "½",
]
PARTS += [
    "你好",
    "。",
    "e\u0301",
    "한글",
    "\u1112\u1161\u11ab",
    "👍🏽",
    "\u00a0",
    "...!?",
    "<|",
    "|>",
    "_",
]
PARTS += ["ﬁ", "Å", "\u212b", "\u3000", "\u200b", "\0", "ไทย", "हिन्दी"]
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.sampled_from(PARTS)).map("".join),
)


@pytest.fixture(scope="module", params=["old", "both"])
def pair(request, tmp_path_factory) -> tuple[Tokenizer, Any]:
    folder: Path = write_old_layout(tmp_path_factory.mktemp("tokenizer"))
    if request.param == "both":
        write_new_layout(folder)
    return load_tokenizer(folder), transformers.Qwen2TokenizerFast.from_pretrained(folder)


@LIGHT
@given(text=texts)
@example(text=" leading and trailing ")
def test_text_has_the_same_ids(pair, text: str):
    ours, theirs = pair
    assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)


@LIGHT
@given(text=texts, name=st.sampled_from([n for n in NAMES if n.startswith("<|")]))
def test_special_strings_split_as_theirs_do_when_asked_to(pair, text: str, name: str):
    ours, theirs = pair
    expected = theirs.encode(text + name, add_special_tokens=False, split_special_tokens=True)
    assert ours.encode(text + name) == expected


def test_control_tokens_have_the_same_ids(pair):
    ours, theirs = pair
    for name in NAMES:
        assert ours.token_id(name) == theirs.convert_tokens_to_ids(name) == control_ids()[name]
    assert ours.eos_token == theirs.eos_token


def test_a_prompt_made_of_ids_equals_the_rendered_template(pair):
    ours, theirs = pair
    start, end = ours.token_id("<|im_start|>"), ours.token_id("<|im_end|>")
    newline = ours.encode("\n")
    ids = [start, *ours.encode("system\nhot words"), end, *newline, start, *ours.encode("user\n")]
    text = "<|im_start|>system\nhot words<|im_end|>\n<|im_start|>user\n"
    assert ids == theirs.encode(text, add_special_tokens=False)


@LIGHT
@given(ids=st.lists(st.integers(0, max(control_ids().values()) + 1)))
def test_decoding(pair, ids: list[int]):
    ours, theirs = pair
    known = [i for i in ids if theirs.convert_ids_to_tokens(i) is not None]
    assert ours.decode(known, skip_special=False) == theirs.decode(known, skip_special_tokens=False)
