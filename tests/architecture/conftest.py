"""The source files of the package, parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"


@dataclass(frozen=True)
class Module:
    """A source file: its dotted name and its tree."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def part(self) -> str:
        """The layer it belongs to: `cli` of stapes.cli.root, `stapes` of the package itself."""
        names = self.name.split(".")
        return names[1] if len(names) > 1 else "stapes"

    def imports(self) -> Iterator[str]:
        """Dotted names of all it imports, wherever in the file, also for type checking only."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}: relative import in line {node.lineno}"
                assert node.module is not None
                # `from stapes import load` and `from stapes.models import registry` alike.
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def parse(path: Path) -> Module:
    parts = path.relative_to(SRC).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))


@pytest.fixture(scope="session")
def modules() -> list[Module]:
    found = [parse(path) for path in sorted((SRC / "stapes").rglob("*.py"))]
    assert len(found) > 10
    return found
