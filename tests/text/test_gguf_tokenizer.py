"""The tokenizer in a GGUF file's metadata is the one that a folder's files hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stapes.errors import ConfigError
from stapes.text.gguf_tokenizer import gguf_end_ids, gguf_prefix_ids, tokenizer_from_gguf
from stapes.text.tokenizer import Tokenizer, load_tokenizer
from text.bpe_folder import CORPUS, NAMES, PLAIN_NAMES, control_ids, trained, write_new_layout

PATH = Path("model.gguf")
KEY = "tokenizer.ggml."
PADDING = 5
TEXTS = [*CORPUS[:4], "", " ", "\n\n", "don't  stop", "12345", "<|im_end|>", "e\u0301", "👍🏽 x"]


def metadata(**changes: Any) -> dict[str, Any]:
    """As llama.cpp's converter writes it; a change to None takes a key away."""
    vocab, merges = trained()
    pieces = sorted(vocab, key=vocab.__getitem__)
    padding = [f"[PAD{i}]" for i in range(PADDING)]
    kinds = [4 if name in PLAIN_NAMES else 3 for name in NAMES]
    values = {
        "model": "gpt2",
        "pre": "a-split",
        "tokens": (*pieces, *NAMES, *padding),
        "token_type": (*[1] * len(pieces), *kinds, *[5] * PADDING),
        "merges": tuple(" ".join(pair) for pair in merges),
        "eos_token_id": control_ids()["<|im_end|>"],
        "padding_token_id": control_ids()["<|endoftext|>"],
        "bos_token_id": control_ids()["<|endoftext|>"],
        "add_bos_token": False,
        **changes,
    }
    return {KEY + key: value for key, value in values.items() if value is not None}


def load(**changes: Any) -> Tokenizer:
    return tokenizer_from_gguf(metadata(**changes), PATH, ("other", "a-split"))


def replaced(index: int, value: Any) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    return lambda values: (*values[:index], value, *values[index + 1 :])


@pytest.fixture(scope="module")
def folder_tokenizer(tmp_path_factory) -> Tokenizer:
    return load_tokenizer(write_new_layout(tmp_path_factory.mktemp("folder")))


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_the_folder(folder_tokenizer, text):
    ours = load()
    assert ours.encode(text) == folder_tokenizer.encode(text)
    assert ours.decode(ours.encode(text)) == folder_tokenizer.decode(folder_tokenizer.encode(text))


def test_every_added_token_has_one_id(folder_tokenizer):
    ours = load()
    for name, token_id in control_ids().items():
        assert ours.token_id(name) == folder_tokenizer.token_id(name) == token_id
        assert ours.has_control(name)
        assert ours.is_control(token_id)
        assert token_id not in ours.encode(f"a {name} b")
        assert ours.token_bytes(token_id) == b""
    assert ours.vocab_size == folder_tokenizer.vocab_size
    assert not ours.has_control("[PAD0]")


def test_rows_that_pad_the_embedding_are_no_tokens():
    ours, first = load(), len(trained()[0]) + len(NAMES)
    assert ours.vocab_size == first
    for token_id in range(first, first + PADDING):
        assert not ours.is_control(token_id)
        assert ours.token_bytes(token_id) == b""


def test_the_end_has_a_name():
    assert load().eos_token == "<|im_end|>"


def test_ends_are_of_text_of_turn_and_of_message():
    ids = control_ids()
    ends = {
        "eos_token_id": ids["<|endoftext|>"],
        "eot_token_id": ids["<|im_end|>"],
        "eom_token_id": ids["<|audio_end|>"],
    }
    assert gguf_end_ids(metadata(**ends), PATH) == set(ends.values())
    assert gguf_end_ids(metadata(), PATH) == {ids["<|im_end|>"]}


def test_what_ends_a_text_is_no_piece_of_one():
    """Whatever type it has: a plain one, or the one that padding has."""
    index = control_ids()["<|im_end|>"]
    for kind in (1, 5):
        types = replaced(index, kind)(metadata()[KEY + "token_type"])
        ours = load(token_type=types)
        assert ours.is_control(index)
        assert index not in ours.encode("<|im_end|>")


def test_a_token_in_front_of_every_text():
    assert gguf_prefix_ids(metadata(), PATH) == ()
    assert gguf_prefix_ids(metadata(add_bos_token=None), PATH) == ()
    begin = control_ids()["<|endoftext|>"]
    assert gguf_prefix_ids(metadata(add_bos_token=True), PATH) == (begin,)
    with pytest.raises(ConfigError, match="bos_token_id is None"):
        gguf_prefix_ids(metadata(add_bos_token=True, bos_token_id=None), PATH)


@pytest.mark.parametrize("key", ["model", "pre", "tokens", "token_type", "merges", "eos_token_id"])
def test_keys_that_are_missing(key):
    with pytest.raises(ConfigError, match=key):
        load(**{key: None})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", "llama"),
        ("pre", "llama-bpe"),
        ("tokens", "text"),
        ("tokens", (1, 2)),
        ("token_type", ("a",)),
        ("token_type", (1, 1)),
        ("merges", (1,)),
        ("merges", ("a b c",)),
        ("merges", ("Ġ nonsense",)),
        ("eos_token_id", -1),
        ("eos_token_id", 10**6),
        ("eos_token_id", "1"),
        ("eos_token_id", True),
        ("eot_token_id", 10**6),
    ],
)
def test_values_that_are_wrong(key, value):
    with pytest.raises(ConfigError, match=r"model\.gguf"):
        load(**{key: value})


@pytest.mark.parametrize("kind", [0, 2, 6, 7])
def test_types_of_other_tokenizers(kind):
    types = replaced(3, kind)(metadata()[KEY + "token_type"])
    with pytest.raises(ConfigError, match=f"token 3 .* unknown type {kind}"):
        load(token_type=types)


@pytest.mark.parametrize("name", ["<|im_start|>", "a", ""])
def test_names_of_several_tokens(name):
    tokens = replaced(control_ids()["<timestamp>"], name)(metadata()[KEY + "tokens"])
    with pytest.raises(ConfigError, match="stand for no token or for several"):
        load(tokens=tokens)


def test_control_tokens_that_text_could_build():
    """A merge makes it: refused, or a user's text could hold it."""
    left, right = trained()[1][0]
    index = metadata()[KEY + "tokens"].index(left + right)
    types = replaced(index, 3)(metadata()[KEY + "token_type"])
    with pytest.raises(ConfigError, match=r"merge 1 .* which the vocabulary lacks"):
        load(token_type=types)
