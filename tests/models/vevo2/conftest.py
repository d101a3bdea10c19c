"""A loaded tiny model, and its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from stapes.cli import main
from stapes.models.vevo2.autoregressive.decoder import Vevo2Decoder
from stapes.models.vevo2.autoregressive.load import load_vevo2
from stapes.options import RuntimeOptions
from vevo2_models import write_root

EXACT = RuntimeOptions("f32", "f32", 1)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder that no test may change."""
    return write_root(tmp_path_factory.mktemp("Vevo2"))


@pytest.fixture(scope="session")
def model(root: Path) -> Vevo2Decoder:
    return load_vevo2(root, EXACT)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Runs a command in this process and returns its exit code and what it printed."""

    def run(*argv: str) -> SimpleNamespace:
        code = main(argv)
        out, err = capfd.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run
