"""Every way in which a tokenizer's files can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stapes.errors import ConfigError
from stapes.text.tokenizer import load_tokenizer
from text.bpe_folder import (
    control_ids,
    tokenizer_config,
    tokenizer_json,
    trained,
    write_json,
    write_new_layout,
    write_old_layout,
)

FIRST_FREE = 10_000


def refuse(folder: Path, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_tokenizer(folder)


def test_an_empty_folder(tmp_path: Path):
    refuse(tmp_path, r"neither tokenizer\.json nor vocab\.json and merges\.txt")


def test_a_folder_that_is_not_there(tmp_path: Path):
    refuse(tmp_path / "nowhere", "holds no tokenizer")


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_one_of_two_files(tmp_path: Path, name: str):
    (write_old_layout(tmp_path) / name).unlink()
    refuse(tmp_path, rf"neither tokenizer\.json nor {name}")


def test_without_a_config_there_are_no_control_tokens(tmp_path: Path):
    (write_old_layout(tmp_path) / "tokenizer_config.json").unlink()
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.vocab_size == len(trained()[0])
    assert tokenizer.eos_token is None


@pytest.mark.parametrize("name", ["vocab.json", "tokenizer_config.json", "added_tokens.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000])
def test_malformed_json_of_the_old_layout(tmp_path: Path, name: str, content: bytes):
    (write_old_layout(tmp_path) / name).write_bytes(content)
    refuse(tmp_path, name)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b"{}"])
def test_malformed_tokenizer_json(tmp_path: Path, content: bytes):
    (write_old_layout(tmp_path) / "tokenizer.json").write_bytes(content)
    refuse(tmp_path, r"tokenizer\.json")


@pytest.mark.parametrize("vocab", [{"a": "0"}, {"a": -1}, {"a": True}, {"a": 1.0}, {"a": 2**31}])
def test_vocabularies_without_ids(tmp_path: Path, vocab: dict[str, Any]):
    write_json(write_old_layout(tmp_path) / "vocab.json", vocab)
    refuse(tmp_path, "must map pieces to whole numbers")


def test_two_pieces_with_one_id(tmp_path: Path):
    write_json(write_old_layout(tmp_path) / "vocab.json", trained()[0] | {"zzz": 5})
    refuse(tmp_path, "share")


@pytest.mark.parametrize("line", ["a", "a b c", "a  b", " a", "a "])
def test_merges_that_do_not_parse(tmp_path: Path, line: str):
    path = write_old_layout(tmp_path) / "merges.txt"
    path.write_text("#version: 0.2\nt h\n" + line + "\n")
    refuse(tmp_path, r"merges\.txt, line 3: a merge is two pieces")


def test_merges_that_are_no_text(tmp_path: Path):
    (write_old_layout(tmp_path) / "merges.txt").write_bytes(b"\xff\xff")
    refuse(tmp_path, "cannot be read as text")


def test_merges_of_unknown_pieces(tmp_path: Path):
    (write_old_layout(tmp_path) / "merges.txt").write_text("qq zz\n")
    refuse(tmp_path, r"merge 1 \('qq zz'\) needs 'qq', which the vocabulary lacks")


def test_merges_with_windows_line_ends_and_a_hash_piece(tmp_path: Path):
    path = write_old_layout(tmp_path) / "merges.txt"
    vocab = trained()[0] | {"##": FIRST_FREE}
    write_json(tmp_path / "vocab.json", vocab)
    path.write_bytes(b"#version: 0.2\r\n# #\r\n")
    assert load_tokenizer(tmp_path).encode("##") == [FIRST_FREE]


SPECS: dict[str, tuple[dict[str, Any], str]] = {
    "other model": ({"model": {"type": "WordPiece", "vocab": {}}}, "only BPE"),
    "no model": ({"model": None}, "only BPE"),
    "no pre-tokenizer": ({"pre_tokenizer": None}, "pre_tokenizer is not"),
    "no decoder": ({"decoder": {"type": "Metaspace"}}, "decoder is not"),
    "unknown normalizer": ({"normalizer": {"type": "Nope"}}, "malformed"),
    "added no list": ({"added_tokens": {}}, "added_tokens must be a list"),
    "added no id": ({"added_tokens": [{"content": "<x>"}]}, "no added token"),
    "added no name": ({"added_tokens": [{"id": FIRST_FREE, "content": ""}]}, "no added token"),
    "added surrogate": ({"added_tokens": [{"id": FIRST_FREE, "content": "\ud800"}]}, "no added"),
    "added no object": ({"added_tokens": ["<x>"]}, "no added token"),
    "added on a piece": ({"added_tokens": [{"id": 3, "content": "<x>"}]}, "id 3 is '<x>', else"),
}


@pytest.mark.parametrize("kind", SPECS)
def test_tokenizer_json_that_is_wrong(tmp_path: Path, kind: str):
    change, message = SPECS[kind]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json() | change))
    refuse(tmp_path, message)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("byte_fallback", True),
        ("dropout", 0.5),
        ("continuing_subword_prefix", "##"),
        ("end_of_word_suffix", "</w>"),
        ("merges", {}),
        ("merges", ["a b c"]),
        ("merges", [["a"]]),
        ("merges", [["a", 3]]),
        ("merges", [["a", "\u4f60"]]),
        ("vocab", []),
    ],
)
def test_models_that_are_not_supported(tmp_path: Path, key: str, value: Any):
    spec = tokenizer_json()
    spec["model"][key] = value
    refuse(write_new_layout(tmp_path, spec), r"tokenizer\.json")


def test_merges_as_pairs_equal_merges_as_text(tmp_path: Path, tokenizer):
    spec = tokenizer_json()
    spec["model"]["merges"] = [list(pair) for pair in trained()[1]]
    loaded = load_tokenizer(write_new_layout(tmp_path, spec))
    assert loaded.encode("The quick brown fox") == tokenizer.encode("The quick brown fox")


def test_a_post_processor_adds_nothing_to_text(tmp_path: Path, tokenizer):
    bos = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
    start = {
        "id": "<|im_start|>",
        "ids": [control_ids()["<|im_start|>"]],
        "tokens": ["<|im_start|>"],
    }
    template = {
        "type": "TemplateProcessing",
        "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            bos,
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {"<|im_start|>": start},
    }
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    spec = tokenizer_json() | {"post_processor": template, "truncation": cut}
    loaded = load_tokenizer(write_new_layout(tmp_path, spec))
    assert loaded.encode("The lazy dogs") == tokenizer.encode("The lazy dogs")


def test_added_tokens_of_the_config_are_merged_into_tokenizer_json(tmp_path: Path):
    write_new_layout(tmp_path)
    config = {"added_tokens_decoder": {str(FIRST_FREE): {"content": "<|extra|>", "special": True}}}
    write_json(tmp_path / "tokenizer_config.json", config)
    write_json(tmp_path / "added_tokens.json", {"<|more|>": FIRST_FREE + 7})
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.token_id("<|extra|>") == FIRST_FREE
    assert tokenizer.token_id("<|more|>") == FIRST_FREE + 7
    assert tokenizer.token_id("<|im_end|>") == control_ids()["<|im_end|>"]
    assert tokenizer.vocab_size == FIRST_FREE + 8
    assert tokenizer.token_bytes(FIRST_FREE - 1) == b""  # in the gap


@pytest.mark.parametrize(
    ("token_id", "name", "message"),
    [
        (FIRST_FREE, "<|im_end|>", "has id 10000, elsewhere"),
        (None, "<|other|>", "is '<|other|>', elsewhere '<|im_end|>'"),
        (FIRST_FREE, "a", "has id 10000, elsewhere"),
    ],
)
def test_files_that_contradict_each_other(tmp_path: Path, token_id, name, message):
    write_new_layout(tmp_path)
    key = str(control_ids()["<|im_end|>"] if token_id is None else token_id)
    write_json(
        tmp_path / "tokenizer_config.json", {"added_tokens_decoder": {key: {"content": name}}}
    )
    refuse(tmp_path, message.replace("|", r"\|"))


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        ([], "must be an object"),
        ({"x": {"content": "<x>"}}, "'x' is no id"),
        ({"9" * 5000: {"content": "<x>"}}, "is no id"),
        ({"9999": "<x>"}, "no added token"),
        ({"9999": {"special": True}}, "no added token"),
    ],
)
def test_malformed_added_tokens_decoder(tmp_path: Path, decoder: Any, message: str):
    write_old_layout(tmp_path, tokenizer_config() | {"added_tokens_decoder": decoder})
    refuse(tmp_path, message)


@pytest.mark.parametrize("eos", [3, ["<|im_end|>"], {"content": 3}])
def test_malformed_eos_token(tmp_path: Path, eos: Any):
    write_old_layout(tmp_path, tokenizer_config() | {"eos_token": eos})
    refuse(tmp_path, "eos_token must be a name")


def test_the_eos_token_may_be_an_object_or_in_the_older_map(tmp_path: Path):
    write_old_layout(tmp_path, tokenizer_config() | {"eos_token": {"content": "<|im_end|>"}})
    assert load_tokenizer(tmp_path).eos_token == "<|im_end|>"
    config = tokenizer_config()
    del config["eos_token"]
    write_old_layout(tmp_path, config)
    write_json(tmp_path / "special_tokens_map.json", {"eos_token": "<|endoftext|>"})
    assert load_tokenizer(tmp_path).eos_token == "<|endoftext|>"


def test_a_control_token_inside_the_vocabulary(tmp_path: Path):
    """Some trainers give control tokens the first ids; BPE cannot build them from text."""
    spec = tokenizer_json()
    spec["model"]["vocab"]["<s>"] = FIRST_FREE
    spec["added_tokens"].append({"id": FIRST_FREE, "content": "<s>"})
    tokenizer = load_tokenizer(write_new_layout(tmp_path, spec))
    assert FIRST_FREE not in tokenizer.encode("<s> <s>")
    assert tokenizer.is_control(FIRST_FREE)


def test_an_eos_token_that_only_the_vocabulary_holds_is_a_control_token(tmp_path: Path):
    spec = tokenizer_json()
    spec["model"]["vocab"]["</s>"] = FIRST_FREE
    write_json(tmp_path / "tokenizer_config.json", {"eos_token": "</s>"})
    assert load_tokenizer(write_new_layout(tmp_path, spec)).token_id("</s>") == FIRST_FREE


@pytest.mark.parametrize("piece", ["!", "Th"])
def test_a_control_token_that_text_could_forge_is_refused(tmp_path: Path, piece: str):
    vocab, merges = trained()
    piece = piece if piece in vocab else "".join(merges[0])
    spec = tokenizer_json()
    spec["added_tokens"].append({"id": vocab[piece], "content": piece})
    refuse(write_new_layout(tmp_path, spec), "both control tokens and pieces")


def test_a_vocabulary_with_whole_words_taken_first_is_watched_too(tmp_path: Path):
    spec = tokenizer_json()
    spec["model"]["vocab"]["<s>"] = FIRST_FREE
    spec["model"]["ignore_merges"] = True
    spec["added_tokens"].append({"id": FIRST_FREE, "content": "<s>"})
    refuse(write_new_layout(tmp_path, spec), "both control tokens and pieces")
