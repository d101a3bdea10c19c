"""The ids that end an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stapes.errors import ConfigError
from stapes.text.folder import Folder
from stapes.text.json_files import read_optional_object
from stapes.text.tokenizer import Tokenizer


def eos_token_ids(
    folder: Folder, tokenizer: Tokenizer, config: Mapping[str, Any]
) -> frozenset[int]:
    """Every id that config.json, generation_config.json or the tokenizer names as an end.

    The files of one model often name different ones, and an answer may end in any of them.
    `config` is config.json, read; `eos_token_id` is looked up in it, in its text_config, its
    thinker_config and that one's text_config. Raises ConfigError when an entry is no id or
    when nothing names one.
    """
    generation = folder / "generation_config.json"
    ids = set(_ids_of(read_optional_object(generation), str(generation)))
    for level in _levels(config):
        ids.update(_ids_of(level, str(folder / "config.json")))
    if tokenizer.eos_token is not None:
        ids.add(tokenizer.token_id(tokenizer.eos_token))
    if not ids:
        raise ConfigError(
            f"No file in {folder} names an end-of-text token: neither config.json, "
            "generation_config.json nor tokenizer_config.json."
        )
    return frozenset(ids)


def _levels(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The config itself and the nested ones that can carry a decoder's settings."""
    levels = [config]
    for key in ("text_config", "thinker_config"):
        nested = config.get(key)
        if isinstance(nested, Mapping):
            levels += _levels(nested)
    return levels


def _ids_of(config: Mapping[str, Any], where: str) -> list[int]:
    """`eos_token_id` as a list: it may be absent, null, one id or a list of ids."""
    value = config.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token_id in ids:
        if type(token_id) is not int or token_id < 0:
            raise ConfigError(
                f"{where}: eos_token_id {value!r} is neither an id nor a list of ids."
            )
    return ids
