"""JSON5 files: the configurations that the publisher's own code reads hold comments and commas."""

from __future__ import annotations

from typing import Any

import json5

from stapes.errors import ConfigError
from stapes.text.folder import File


def read_json5_object(path: File) -> dict[str, Any]:
    """The object in a JSON5 file; ConfigError, naming the file, when there is none.

    JSON is JSON5. The parser is written in Python: give it configurations, not vocabularies.
    """
    try:
        value = json5.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON5: {error}.") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold a JSON5 object, not {type(value).__name__}.")
    return value
