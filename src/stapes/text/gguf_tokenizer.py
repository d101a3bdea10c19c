"""The tokenizer that a GGUF file carries in its metadata.

Keys and token types are those of ggml-org/ggml's docs/gguf.md. The file holds one list of all
tokens; a type tells the pieces of plain text from the tokens that were added to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from stapes.errors import ConfigError
from stapes.text.tokenizer import Tokenizer, tokenizer_from_files
from stapes.text.tokenizer_files import TokenizerFiles, byte_level_spec, check_bpe

_PREFIX = "tokenizer.ggml."
_EOS = "eos_token_id"
_END_KEYS = (_EOS, "eot_token_id", "eom_token_id")  # end of text, of a turn, of a message

# Token types: pieces of text; the two kinds of added tokens; rows that only pad the embedding.
_PIECE, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5


def tokenizer_from_gguf(
    metadata: Mapping[str, Any], path: Path, known_splits: Collection[str]
) -> Tokenizer:
    """The tokenizer of a GGUF file; as from `load_tokenizer`, all added tokens are control tokens.

    Args:
        metadata: of the open file.
        path: of the file, for messages.
        known_splits: values of `tokenizer.ggml.pre` that mean `tokenizer_files.DEFAULT_SPLIT`.

    Raises:
        ConfigError: something is missing, malformed, in contradiction or not supported.
    """
    _require(metadata, path, "model", ("gpt2",))  # ggml's word for byte-level BPE
    _require(metadata, path, "pre", known_splits)
    vocab, control = _tokens(metadata, path)
    merges = list(_list(metadata, path, "merges", str))
    spec = byte_level_spec({"type": "BPE", "vocab": vocab, "merges": merges}, prefix_space=False)
    check_bpe(spec, path)
    eos: Any = metadata.get(_PREFIX + _EOS)
    return tokenizer_from_files(TokenizerFiles(path, spec, control, control.get(eos)))


def gguf_end_ids(metadata: Mapping[str, Any], path: Path) -> frozenset[int]:
    """Every id that the metadata names as an end: of text, of a turn or of a message.

    Raises ConfigError when one is no token of the file or when there is none at all.
    """
    named = {key: metadata[_PREFIX + key] for key in _END_KEYS if _PREFIX + key in metadata}
    size = len(_list(metadata, path, "tokens", str))
    for key, token_id in named.items():
        if type(token_id) is not int or not 0 <= token_id < size:
            raise ConfigError(f"{path}: {key} is {token_id!r}, but there are {size} tokens.")
    if not named:
        raise ConfigError(f"{path} names no end of text: {_PREFIX}{_EOS} is missing.")
    return frozenset(named.values())


def gguf_prefix_ids(metadata: Mapping[str, Any], path: Path) -> tuple[int, ...]:
    """What belongs in front of every text: the begin-of-text token where the file asks for it."""
    if metadata.get(f"{_PREFIX}add_bos_token", False) is False:
        return ()
    token_id = metadata.get(f"{_PREFIX}bos_token_id")
    size = len(_list(metadata, path, "tokens", str))
    if type(token_id) is not int or not 0 <= token_id < size:
        raise ConfigError(f"{path}: bos_token_id is {token_id!r}, but there are {size} tokens.")
    return (token_id,)


def _tokens(metadata: Mapping[str, Any], path: Path) -> tuple[dict[str, int], dict[int, str]]:
    """The pieces of plain text with their ids, and the ids of all other tokens with their names.

    What ends a text is no piece of one, whatever its type.
    """
    names, types = _list(metadata, path, "tokens", str), _list(metadata, path, "token_type", int)
    if len(names) != len(types):
        raise ConfigError(f"{path} has {len(names)} tokens, but {len(types)} token types.")
    ends = gguf_end_ids(metadata, path)
    vocab: dict[str, int] = {}
    control: dict[int, str] = {}
    kept: Counter[str] = Counter()
    for token_id, (name, kind) in enumerate(zip(names, types, strict=True)):
        if kind not in (_PIECE, _CONTROL, _USER_DEFINED, _UNUSED):
            raise ConfigError(f"{path}: token {token_id} ({name!r}) has the unknown type {kind}.")
        if kind == _UNUSED and token_id not in ends:
            continue
        kept[name] += 1
        if kind == _PIECE and token_id not in ends:
            vocab[name] = token_id
        else:
            control[token_id] = name
    _refuse_ambiguous(kept, path)
    return vocab, control


def _refuse_ambiguous(kept: Counter[str], path: Path) -> None:
    """Every token has a name, and no two have the same."""
    repeated = [name for name, count in kept.items() if count > 1 or not name]
    if repeated:
        shown = ", ".join(map(repr, repeated[:10]))
        raise ConfigError(
            f"{path}: {len(repeated)} names stand for no token or for several: {shown}."
        )


def _require(metadata: Mapping[str, Any], path: Path, key: str, known: Collection[str]) -> None:
    value = metadata.get(_PREFIX + key)
    if value not in known:
        choices = " or ".join(repr(name) for name in known)
        raise ConfigError(f"{path}: {_PREFIX}{key} is {value!r}; only {choices} is supported.")


def _list(
    metadata: Mapping[str, Any], path: Path, key: str, kind: type[str] | type[int]
) -> tuple[Any, ...]:
    """An array of the metadata, whose elements are all of one kind; ConfigError otherwise."""
    values = metadata.get(_PREFIX + key)
    if not isinstance(values, tuple) or (values and type(values[0]) is not kind):
        raise ConfigError(f"{path} has no list {_PREFIX}{key} of {kind.__name__} values.")
    return values
