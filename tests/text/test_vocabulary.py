"""Merging gives the ids of the tokenizers library, whatever the vocabulary and the text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from stapes.errors import ConfigError, RequestError
from stapes.text.tokenizer import tokenizer_from_files
from stapes.text.tokenizer_files import TokenizerFiles, byte_level_spec
from stapes.text.vocabulary import ARRAYS, Vocabulary, pack_vocabulary
from text.bpe_folder import trained

LETTERS = "abcd"


def pair_of_tokenizers(model: dict[str, Any]) -> tuple[Any, Any]:
    """Ours and the library's, of the same model."""
    spec = byte_level_spec({"type": "BPE", **model}, False)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(spec))
    return tokenizer_from_files(TokenizerFiles("here", spec, {}, None)), theirs


@pytest.fixture(scope="module")
def both() -> tuple[Any, Any]:
    vocab, merges = trained(900)
    return pair_of_tokenizers({"vocab": vocab, "merges": [list(pair) for pair in merges]})


@given(st.text(max_size=60))
def test_any_text(both, text: str):
    ours, theirs = both
    assert ours.encode(text) == theirs.encode(text).ids


@given(st.lists(st.sampled_from(["the ", "über", "你好", "fox", "'s", "\n\n", " ", "0123", "ing"])))
def test_words_that_it_was_trained_on(both, parts: list[str]):
    ours, theirs = both
    assert ours.encode("".join(parts)) == theirs.encode("".join(parts)).ids


@st.composite
def random_model(draw) -> dict[str, Any]:
    """A vocabulary that grew by random merges, also of pairs that make the same piece."""
    vocab = {letter: i for i, letter in enumerate(LETTERS)}
    merges: list[list[str]] = []
    for _ in range(draw(st.integers(0, 25))):
        left, right = (draw(st.sampled_from(sorted(vocab))) for _ in range(2))
        vocab.setdefault(left + right, len(vocab))
        merges.append([left, right])
    return {"vocab": vocab, "merges": merges, "ignore_merges": draw(st.booleans())}


@given(random_model(), st.text(LETTERS, max_size=30))
def test_any_merges(model: dict[str, Any], text: str):
    ours, theirs = pair_of_tokenizers(model)
    assert ours.encode(text) == theirs.encode(text).ids
    assert ours.decode(ours.encode(text)) == text


def test_a_word_of_a_hundred_thousand_characters_takes_no_square(both):
    ours, theirs = both
    text = "abcdefgh" * 12_000
    assert ours.encode(text) == theirs.encode(text).ids


def test_ids_may_lie_far_apart():
    vocabulary = pack_vocabulary({"b": 2**31 - 1, "a": 5, "ab": 7}, [("a", "b")], False, "here")
    assert vocabulary.size == 2**31
    assert [vocabulary.piece(i) for i in (4, 5, 6, 7, 2**31 - 1)] == [None, "a", None, "ab", "b"]
    assert vocabulary.encode("abb") == (7, 2**31 - 1)


def test_no_pieces_at_all():
    ours, _ = pair_of_tokenizers({"vocab": {}, "merges": []})
    assert ours.encode("") == []
    assert ours.vocab_size == 0
    with pytest.raises(RequestError, match="cannot write the character 'a'"):
        ours.encode("a")


def test_a_piece_that_is_not_unicode():
    with pytest.raises(ConfigError, match="malformed"):
        pack_vocabulary({"\ud800": 0}, [], False, "here")


GOOD = pack_vocabulary({"a": 0, "b": 1, "é": 3, "ab": 4}, [("a", "b"), ("b", "a")][:1], False, "x")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ids", [0, 1, 4, 3]),
        ("ids", [0, 1, 1, 4]),
        ("ids", [0, 1, 3]),
        ("ids", [-1, 1, 3, 4]),
        ("ends", [1, 2, 4, 7]),
        ("ends", [2, 1, 4, 6]),
        ("ends", [-1, 2, 4, 6]),
        ("pairs", []),
        ("products", [2]),
        ("products", [4, 4]),
        ("ranks", []),
        ("pieces", []),
    ],
)
def test_arrays_that_do_not_fit_together(name: str, values: list[int]):
    damaged = {**GOOD.arrays, name: np.array(values, ARRAYS[name])}
    with pytest.raises(ConfigError, match="do not fit together"):
        Vocabulary(damaged, False, "here")


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_another_type(name: str):
    damaged = {**GOOD.arrays, name: GOOD.arrays[name].astype(np.float32)}
    with pytest.raises(ConfigError, match="do not fit together"):
        Vocabulary(damaged, False, "here")
