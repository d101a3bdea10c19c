r"""A byte-level BPE tokenizer that keeps user text and control tokens apart.

Text goes through a tokenizer that knows no added tokens at all, so "<|im_end|>" in a user's text
becomes the plain pieces of these characters. Control tokens are put into a prompt by id:

    start = tokenizer.token_id("<|im_start|>")
    prompt = [start, *tokenizer.encode("system\n" + context), ...]
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from stapes.errors import ConfigError, RequestError
from stapes.text.byte_level import CHARACTER_OF_BYTE, UTF8_BYTES, piece_bytes
from stapes.text.folder import Folder
from stapes.text.tokenizer_files import TokenizerFiles, read_tokenizer_files
from stapes.text.vocabulary import Vocabulary, pack_vocabulary


def load_tokenizer(folder: str | os.PathLike[str] | Folder) -> Tokenizer:
    """The tokenizer of a model folder: tokenizer.json, or vocab.json and merges.txt.

    Added tokens come from all files that name some, and must agree. Raises ConfigError.
    """
    place = Path(folder) if isinstance(folder, str | os.PathLike) else folder
    return tokenizer_from_files(read_tokenizer_files(place))


def tokenizer_from_files(files: TokenizerFiles) -> Tokenizer:
    """The tokenizer of files that have been read and checked. Raises ConfigError."""
    model = files.spec["model"]
    merges = [(left, right) for left, right in model["merges"]]
    whole_words, where = bool(model.get("ignore_merges")), str(files.folder)
    split = {**files.spec, "model": {**model, "vocab": {}, "merges": []}}
    vocabulary = pack_vocabulary(model["vocab"], merges, whole_words, where)
    return Tokenizer(TokenizerParts(where, split, vocabulary, files.control, files.eos_token))


@dataclass(frozen=True, eq=False)
class TokenizerParts:
    """What a tokenizer is made of.

    Attributes:
        where: its files, for messages.
        split: a tokenizer.json without vocabulary and merges: what text goes through before BPE.
        vocabulary: pieces and merges.
        control: id -> name of every added token.
        eos_token: the name of the token that ends a text, or None.
    """

    where: str
    split: Mapping[str, Any]
    vocabulary: Vocabulary
    control: Mapping[int, str]
    eos_token: str | None


class Tokenizer:
    """Between text and ids. Control tokens are all added tokens, flagged special or not."""

    def __init__(self, parts: TokenizerParts) -> None:
        try:
            splitter = tokenizers.Tokenizer.from_str(json.dumps(parts.split))
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(f"The tokenizer in {parts.where} is malformed: {error}.") from error
        self.parts = parts
        self._normalizer, self._splitter = splitter.normalizer, splitter.pre_tokenizer
        self._vocabulary = parts.vocabulary
        self._control = dict(parts.control)
        self._ids = {name: token_id for token_id, name in parts.control.items()}
        characters = parts.vocabulary.characters
        self._unknown_bytes = {b for b in UTF8_BYTES if CHARACTER_OF_BYTE[b] not in characters}
        self.eos_token = parts.eos_token
        self.vocab_size = max(parts.vocabulary.size, 1 + max(self._control, default=-1))
        """One more than the highest id, control tokens included."""

    def encode(self, text: str) -> list[int]:
        """The ids of plain text, which never are control tokens.

        Raises RequestError for text that is not valid Unicode or has no pieces here.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RequestError(
                f"The text is not valid Unicode at character {error.start}: {error.reason}."
            ) from error
        if self._normalizer is not None:
            text = self._normalizer.normalize_str(text)
        if self._unknown_bytes:
            self._refuse_unknown(text)
        ids: list[int] = []
        try:
            for word, _ in self._splitter.pre_tokenize_str(text):
                ids += self._vocabulary.encode(word)
        except KeyError as error:
            raise self._unwritable(error.args[0]) from None
        return ids

    def _refuse_unknown(self, text: str) -> None:
        """An error names the character of the text, not its bytes in the model's alphabet."""
        for character in text:
            if not self._unknown_bytes.isdisjoint(character.encode("utf-8")):
                raise self._unwritable(character)

    def _unwritable(self, character: str) -> RequestError:
        return RequestError(f"The model's tokenizer cannot write the character {character!r}.")

    def token_id(self, name: str) -> int:
        """The id of a control token; ConfigError when the model has none of this name."""
        if name not in self._ids:
            raise ConfigError(f"The tokenizer in {self.parts.where} has no control token {name!r}.")
        return self._ids[name]

    def has_control(self, name: str) -> bool:
        """Whether there is a control token of this name."""
        return name in self._ids

    def is_control(self, token_id: int) -> bool:
        """Whether the id is an added token, so that `encode` never returns it."""
        return token_id in self._control

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token's text; maybe no whole characters.

        b"" for control tokens and for the ids above the vocabulary that pad an embedding table.
        Raises RequestError for negative ids.
        """
        if token_id < 0:
            raise RequestError(f"{token_id} is no token id.")
        if token_id in self._control or token_id >= self.vocab_size:
            return b""
        piece = self._vocabulary.piece(token_id)
        return b"" if piece is None else piece_bytes(piece)

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of ids; control tokens are left out, or written by name.

        Bytes that are not UTF-8 become U+FFFD.
        """
        return b"".join(self._shown_bytes(i, skip_special) for i in ids).decode("utf-8", "replace")

    def _shown_bytes(self, token_id: int, skip_special: bool) -> bytes:
        if not skip_special and token_id in self._control:
            return self._control[token_id].encode("utf-8")
        return self.token_bytes(token_id)
