"""Print requirements of pyproject.toml, one a line: `requirements.py build`, or names of extras."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def main() -> None:
    """Print the requirements of every name given."""
    config = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    groups = {"build": config["build-system"]["requires"]}
    groups |= config["project"]["optional-dependencies"]
    for name in sys.argv[1:]:
        print(*groups[name], sep="\n")


if __name__ == "__main__":
    main()
