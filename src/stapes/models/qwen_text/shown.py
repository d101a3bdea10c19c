"""Control tokens that belong into a model's text, such as <think> and <tool_call>.

Tokenizers flag every added token as special or not; those that are not are part of what a model
writes to its reader. The flags lie in tokenizer_config.json or tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from stapes.errors import ConfigError
from stapes.text.folder import Folder
from stapes.text.json_files import read_optional_object
from stapes.text.tokenizer import Tokenizer


class ShownTokens:
    """Bytes of tokens for a `Detokenizer`: as the tokenizer's, and the names of some control ones.

    Args:
        tokenizer: of the model.
        shown: ids of control tokens whose names are text.
    """

    def __init__(self, tokenizer: Tokenizer, shown: Collection[int]) -> None:
        self._tokenizer = tokenizer
        names = tokenizer.parts.control
        self._shown = {i: names[i].encode("utf-8") for i in shown if i in names}

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token's text; maybe no whole characters."""
        shown = self._shown.get(token_id)
        return self._tokenizer.token_bytes(token_id) if shown is None else shown


def read_shown_ids(folder: Folder) -> frozenset[int]:
    """Ids that the files flag as not special. ConfigError when the flags are malformed."""
    config = read_optional_object(folder / "tokenizer_config.json")
    try:
        flags = {int(i): token for i, token in config.get("added_tokens_decoder", {}).items()}
        if not flags:
            listed = read_optional_object(folder / "tokenizer.json").get("added_tokens") or []
            flags = {token["id"]: token for token in listed}
        return frozenset(i for i, token in flags.items() if token.get("special") is False)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"The added tokens in {folder} are malformed: {error!r}.") from error


def shown_config(tokenizer: Tokenizer, shown: Collection[int]) -> dict[str, Any]:
    """A tokenizer_config.json from which `read_shown_ids` reads these ids."""
    names = tokenizer.parts.control.items()
    return {
        "added_tokens_decoder": {
            str(i): {"content": name, "special": i not in shown} for i, name in names
        }
    }
