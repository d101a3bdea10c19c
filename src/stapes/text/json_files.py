"""Reads the JSON files that lie beside a model's weights."""

from __future__ import annotations

import json
from typing import Any

from stapes.errors import ConfigError
from stapes.text.folder import File


def read_json_object(path: File) -> dict[str, Any]:
    """The object in a JSON file; ConfigError, naming the file, when there is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold a JSON object, not {type(value).__name__}.")
    return value


def read_optional_object(path: File) -> dict[str, Any]:
    """As read_json_object, but {} when there is no such file."""
    return read_json_object(path) if path.exists() else {}
