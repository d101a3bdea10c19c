"""Where a Hugging Face folder keeps its chat template, and the token that begins a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stapes.errors import ConfigError
from stapes.text.folder import Folder
from stapes.text.json_files import read_optional_object
from stapes.text.tokenizer import Tokenizer


def read_chat_template(folder: Folder) -> str | None:
    """chat_template.jinja, else tokenizer_config.json's chat_template; None without either.

    Raises ConfigError when it cannot be read or is no text.
    """
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read as text: {error}.") from error
    config = folder / "tokenizer_config.json"
    template = _default(read_optional_object(config).get("chat_template"))
    if template is not None and not isinstance(template, str):
        raise ConfigError(f"{config}: chat_template must be text or a list with a default one.")
    return template


def _default(template: Any) -> Any:
    """Of a list of named templates, as some files have, the one called default."""
    if not isinstance(template, list):
        return template
    named = [t for t in template if isinstance(t, dict) and t.get("name") == "default"]
    return named[0].get("template") if named else template


def read_bos_token(folder: Folder, tokenizer: Tokenizer, prefix_ids: Sequence[int]) -> str | None:
    """The name that a template knows as bos_token: tokenizer_config.json's, else the prefix's."""
    token = read_optional_object(folder / "tokenizer_config.json").get("bos_token")
    name = token.get("content") if isinstance(token, dict) else token
    if isinstance(name, str) and tokenizer.has_control(name):
        return name
    return tokenizer.parts.control.get(prefix_ids[0]) if prefix_ids else None
