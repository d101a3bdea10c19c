"""Files and functions stay short enough to be read in one go."""

from __future__ import annotations

import ast

MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 60


def test_files(modules):
    lengths = {m.name: len(m.path.read_text(encoding="utf-8").splitlines()) for m in modules}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES_OF_A_FILE} == {}


def test_functions(modules):
    lengths = {
        f"{module.name}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: n for name, n in lengths.items() if n > MOST_LINES_OF_A_FUNCTION} == {}
