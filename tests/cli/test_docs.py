"""docs/cli.md says what the commands' help says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docs" / "generate_cli.py"


def test_the_help_in_the_docs_is_current():
    spec = importlib.util.spec_from_file_location("generate_cli", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    current = module.TARGET.read_text(encoding="utf-8")
    assert current == module.render(), "docs/cli.md is stale: run make docs"
