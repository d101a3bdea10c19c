"""Reads a tokenizer's files into one checked form.

Two layouts: `tokenizer.json`, or the older `vocab.json` + `merges.txt`. Beside either,
`tokenizer_config.json` (and `added_tokens.json`, older still) may name further added tokens.
Every way in which they can be wrong is a ConfigError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stapes.errors import ConfigError
from stapes.text.byte_level import BYTE_OF_CHARACTER
from stapes.text.folder import File, Folder
from stapes.text.json_files import read_json_object, read_optional_object

# What Qwen2's tokenizer splits text by before BPE, and its normaliser: facts of
# transformers/models/qwen2/tokenization_qwen2.py, where vocab.json and merges.txt say neither.
DEFAULT_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UNSUPPORTED = ("dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix")


@dataclass(frozen=True)
class TokenizerFiles:
    """What the files say.

    Attributes:
        folder: where they lie, for messages.
        spec: a tokenizer.json without added tokens and post-processor: plain text only.
        control: id -> name of every added token, whether flagged special or not.
        eos_token: the name that tokenizer_config.json gives, or None.
    """

    folder: object
    spec: Mapping[str, Any]
    control: Mapping[int, str]
    eos_token: str | None


def read_tokenizer_files(folder: Folder) -> TokenizerFiles:
    """Raises ConfigError when files are missing, malformed, unsupported or in contradiction."""
    config = read_optional_object(folder / "tokenizer_config.json")
    spec, where = _read_spec(folder, config)
    added = _AddedTokens(vocab := check_bpe(spec, where))
    for token in _list(spec.pop("added_tokens", None), where, "added_tokens"):
        added.add(where, _field(token, "id"), _field(token, "content"))
    _add_beside(added, folder, config)
    eos = _eos_name(folder, config)
    if eos in vocab:
        added.add(where, vocab[eos], eos)
    _refuse_reachable(spec["model"], added.names, where)
    # Neither belongs to plain text: a post-processor adds tokens, truncation loses some.
    plain = {
        **spec,
        "added_tokens": [],
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    return TokenizerFiles(folder, plain, added.names, eos)


def _read_spec(folder: Folder, config: Mapping[str, Any]) -> tuple[dict[str, Any], File]:
    """The tokenizer.json, or one made of the older files; and the file to name in messages."""
    whole, vocab, merges = (folder / n for n in ("tokenizer.json", "vocab.json", "merges.txt"))
    if whole.exists():
        return read_json_object(whole), whole
    absent = [path.name for path in (vocab, merges) if not path.exists()]
    if absent:
        raise ConfigError(
            f"{folder} holds no tokenizer: neither tokenizer.json nor {' and '.join(absent)}."
        )
    model = {"type": "BPE", "vocab": read_json_object(vocab), "merges": read_merges(merges)}
    return byte_level_spec(model, bool(config.get("add_prefix_space"))), vocab


def byte_level_spec(model: dict[str, Any], prefix_space: bool) -> dict[str, Any]:
    """A tokenizer.json around a BPE model, as transformers builds it for Qwen2."""
    split = {"type": "Split", "pattern": {"Regex": DEFAULT_SPLIT}, "behavior": "Isolated"}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True}
    return {
        "version": "1.0",
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{**split, "invert": False}, {**to_bytes, "use_regex": False}],
        },
        "decoder": {**to_bytes, "use_regex": True},
        "model": model,
    }


def read_merges(path: File) -> list[list[str]]:
    """Pairs of pieces, most urgent first; the first line may be `#version: ...`."""
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as text: {error}.") from error
    merges: list[list[str]] = []
    for number, line in enumerate(lines, start=1):
        pair = line.rstrip("\r").split(" ")
        if pair == [""] or (number == 1 and line.startswith("#version")):
            continue
        if len(pair) != 2 or not all(pair):
            raise ConfigError(f"{path}, line {number}: a merge is two pieces, not {line[:80]!r}.")
        merges.append(pair)
    return merges


def check_bpe(spec: Mapping[str, Any], where: File) -> dict[str, int]:
    """The vocabulary of a byte-level BPE, after all of its parts have been checked."""
    model = spec.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE":
        raise ConfigError(f"{where}: only BPE tokenizers are supported.")
    for stage in ("pre_tokenizer", "decoder"):
        if not _is_byte_level(spec.get(stage)):
            raise ConfigError(f"{where}: only byte-level BPE is supported; the {stage} is not.")
    for key in UNSUPPORTED:
        if model.get(key):
            raise ConfigError(f"{where}: {key} {model[key]!r} is not supported.")
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not all(_is_id(value) for value in vocab.values()):
        raise ConfigError(f"{where}: the vocabulary must map pieces to whole numbers.")
    if len(set(vocab.values())) != len(vocab):
        raise ConfigError(f"{where}: {len(vocab)} pieces share {len(set(vocab.values()))} ids.")
    model["merges"] = _check_merges(model.get("merges"), vocab, where)
    return vocab


def _is_byte_level(stage: Any) -> bool:
    if not isinstance(stage, dict):
        return False
    parts = stage.get("pretokenizers", stage.get("decoders", []))
    nested = isinstance(parts, list) and any(_is_byte_level(part) for part in parts)
    return stage.get("type") == "ByteLevel" or nested


def _check_merges(merges: Any, vocab: Mapping[str, int], where: File) -> list[list[str]]:
    pairs: list[list[str]] = []
    for number, merge in enumerate(_list(merges, where, "merges"), start=1):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or [type(piece) for piece in pair] != [str, str]:
            raise ConfigError(f"{where}: merge {number} is two pieces, not {merge!r}.")
        left, right = pair
        if left not in vocab or right not in vocab or left + right not in vocab:
            unknown = next(p for p in (left, right, left + right) if p not in vocab)
            raise ConfigError(
                f"{where}: merge {number} ({left + ' ' + right!r}) needs {unknown!r}, "
                "which the vocabulary lacks."
            )
        pairs.append(pair)
    return pairs


class _AddedTokens:
    """Added tokens of several files, which must agree with each other and the vocabulary."""

    def __init__(self, vocab: Mapping[str, int]) -> None:
        self.names: dict[int, str] = {}
        self._ids = dict(vocab)
        self._pieces = {value: piece for piece, value in vocab.items()}

    def add(self, where: File, token_id: Any, name: Any) -> None:
        if not _is_id(token_id) or not _is_text(name):
            raise ConfigError(f"{where}: {name!r} with id {token_id!r} is no added token.")
        known_id, known_name = self._ids.get(name), self._pieces.get(token_id)
        if known_id not in (None, token_id):
            raise ConfigError(f"{where}: token {name!r} has id {token_id}, elsewhere {known_id}.")
        if known_name not in (None, name):
            raise ConfigError(f"{where}: id {token_id} is {name!r}, elsewhere {known_name!r}.")
        self.names[token_id] = name
        self._ids[name] = token_id
        self._pieces[token_id] = name


def _add_beside(added: _AddedTokens, folder: Folder, config: Mapping[str, Any]) -> None:
    """Tokens that tokenizer_config.json and added_tokens.json name."""
    path = folder / "tokenizer_config.json"
    decoder = config.get("added_tokens_decoder", {})
    if not isinstance(decoder, dict):
        raise ConfigError(f"{path}: added_tokens_decoder must be an object.")
    for text, token in decoder.items():
        if not text.isdecimal() or len(text) > 10:
            raise ConfigError(f"{path}: {text!r} is no id in added_tokens_decoder.")
        added.add(path, int(text), _field(token, "content"))
    older = folder / "added_tokens.json"
    for name, token_id in read_optional_object(older).items():
        added.add(older, token_id, name)


def _eos_name(folder: Folder, config: Mapping[str, Any]) -> str | None:
    """`eos_token`, plain or as an object, of tokenizer_config.json or the older map."""
    older = read_optional_object(folder / "special_tokens_map.json")
    token = config.get("eos_token", older.get("eos_token"))
    name = _field(token, "content") if isinstance(token, dict) else token
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"{folder / 'tokenizer_config.json'}: eos_token must be a name.")
    return name or None


def _refuse_reachable(model: Mapping[str, Any], control: Mapping[int, str], where: File) -> None:
    """No control token may be a piece that BPE can build, or user text could forge it.

    BPE builds single characters and products of merges, with ignore_merges any whole piece.
    """
    vocab = model["vocab"]
    shared = {name for name in control.values() if name in vocab}
    if not shared:
        return
    built = {"".join(pair) for pair in model["merges"]} | set(BYTE_OF_CHARACTER)
    forged = sorted(shared if model.get("ignore_merges") else shared & built)
    if forged:
        raise ConfigError(
            f"{where}: {', '.join(forged)} would be both control tokens and pieces of plain text."
        )


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_text(value: Any) -> bool:
    """A string that is not empty and has no lone surrogates (U+D800 to U+DFFF)."""
    return isinstance(value, str) and value != "" and not re.search("[\ud800-\udfff]", value)


def _field(token: Any, key: str) -> Any:
    return token.get(key) if isinstance(token, dict) else None


def _list(value: Any, where: File, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{where}: {name} must be a list.")
    return value
