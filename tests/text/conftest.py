from __future__ import annotations

from pathlib import Path

import pytest

from stapes.text.tokenizer import Tokenizer, load_tokenizer
from text import bpe_folder


@pytest.fixture(params=["old", "new", "both"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model folder with a tokenizer in each layout in turn."""
    if request.param != "new":
        bpe_folder.write_old_layout(tmp_path)
    if request.param != "old":
        bpe_folder.write_new_layout(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(bpe_folder.write_old_layout(tmp_path_factory.mktemp("tokenizer")))
