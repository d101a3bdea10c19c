r"""A byte-level BPE tokenizer that keeps user text and control tokens apart.

Text goes through a tokenizer that knows no added tokens at all, so "<|im_end|>" in a user's text
becomes the plain pieces of these characters. Control tokens are put into a prompt by id:

    start = tokenizer.token_id("<|im_start|>")
    prompt = [start, *tokenizer.encode("system\n" + context), ...]
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import tokenizers

from stapes.errors import ConfigError, RequestError
from stapes.text.byte_level import CHARACTER_OF_BYTE, UTF8_BYTES, piece_bytes
from stapes.text.tokenizer_files import TokenizerFiles, read_tokenizer_files


def load_tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a model folder: tokenizer.json, or vocab.json and merges.txt.

    Added tokens come from all files that name some, and must agree. Raises ConfigError.
    """
    return Tokenizer(read_tokenizer_files(Path(folder)))


class Tokenizer:
    """Between text and ids. Control tokens are all added tokens, flagged special or not."""

    def __init__(self, files: TokenizerFiles) -> None:
        try:
            self._plain = tokenizers.Tokenizer.from_str(json.dumps(files.spec))
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(f"The tokenizer in {files.folder} is malformed: {error}.") from error
        self._folder = files.folder
        self._control = dict(files.control)
        self._ids = {name: token_id for token_id, name in files.control.items()}
        vocab = files.spec["model"]["vocab"]
        self._unknown_bytes = {b for b in UTF8_BYTES if CHARACTER_OF_BYTE[b] not in vocab}
        self.eos_token = files.eos_token
        self.vocab_size = 1 + max([*vocab.values(), *self._control], default=-1)
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
        if self._unknown_bytes:
            self._refuse_unknown(text)
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def _refuse_unknown(self, text: str) -> None:
        """BPE drops what it has no piece for; an error is better."""
        if self._plain.normalizer is not None:
            text = self._plain.normalizer.normalize_str(text)
        for character in text:
            if not self._unknown_bytes.isdisjoint(character.encode("utf-8")):
                raise RequestError(
                    f"The model's tokenizer cannot write the character {character!r}."
                )

    def token_id(self, name: str) -> int:
        """The id of a control token; ConfigError when the model has none of this name."""
        if name not in self._ids:
            raise ConfigError(f"The tokenizer in {self._folder} has no control token {name!r}.")
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
        piece = self._plain.id_to_token(token_id)
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
