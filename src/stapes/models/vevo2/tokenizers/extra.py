"""The libraries of the extra `voice`, imported when a feature needs them."""

from __future__ import annotations

import importlib
from typing import Any

from stapes.errors import RequestError

_DISTRIBUTIONS = {"librosa": "librosa", "parselmouth": "praat-parselmouth"}


def voice_library(module: str, purpose: str) -> Any:
    """A module of the extra.

    Args:
        module: "librosa" or "parselmouth".
        purpose: what it is wanted for, as the subject of a sentence.

    Raises:
        RequestError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RequestError(
            f"{purpose} needs {_DISTRIBUTIONS[module]}, which cannot be imported ({error});"
            " pip install 'stapes[voice]' brings it."
        ) from error
