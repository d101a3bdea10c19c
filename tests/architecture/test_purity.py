"""What the lower layers do not do, and do not know."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

EDGES = {"cli", "server", "bench", "__main__"}
BELOW_MODELS = {"errors", "options", "tensors", "weights", "graph", "decoder", "audio", "text"}

IMPURE = {
    "print": "prints",
    "input": "reads the terminal",
    "sys.stdout": "writes to standard output",
    "sys.stderr": "writes to standard error",
    "sys.exit": "ends the program",
    "os._exit": "ends the program",
    "os.environ": "reads the environment",
    "os.getenv": "reads the environment",
    "os.putenv": "changes the environment",
    "os.chdir": "changes the working directory",
    "logging.basicConfig": "configures logging",
    "logging.captureWarnings": "configures logging",
    "logging.config": "configures logging",
    "warnings.filterwarnings": "configures warnings",
    "warnings.simplefilter": "configures warnings",
    "signal.signal": "takes a signal over",
}

MODEL_NAME = re.compile(r"qwen|vevo|whisper|tiny[-_]en", re.IGNORECASE)


def dotted(node: ast.AST) -> str:
    """`os.environ` of the expression os.environ; "" of anything that is no dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (left := dotted(node.value)):
        return f"{left}.{node.attr}"
    return ""


def impurities(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [dotted(node)] if isinstance(node, ast.Name | ast.Attribute) else []
        yield from (f"line {node.lineno}: {IMPURE[name]}" for name in names if name in IMPURE)


def names_in_code(tree: ast.Module) -> Iterator[str]:
    """Identifiers and strings, without docstrings and comments: those may explain."""
    explained = {id(text) for text in docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from () if id(node) in explained else (node.value,)
        for field in ("id", "attr", "name", "arg", "module"):
            value = getattr(node, field, None)
            yield from (value,) if isinstance(value, str) else ()


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Every string that stands as a statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def test_only_the_edges_touch_the_surroundings(modules):
    wrong = [
        f"{module.name}, {what}"
        for module in modules
        if module.part not in EDGES
        for what in impurities(module.tree)
    ]
    assert wrong == []


def test_nothing_below_models_knows_a_model(modules):
    wrong = [
        f"{module.name}: {name!r}"
        for module in modules
        if module.part in BELOW_MODELS
        for name in names_in_code(module.tree)
        if MODEL_NAME.search(name)
    ]
    assert wrong == []


def test_the_core_knows_no_model():
    root = Path(__file__).parents[2] / "native"
    files = [path for path in root.rglob("*") if path.suffix in {".cpp", ".h", ".hpp", ".inl"}]
    comment = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
    wrong = [path.name for path in files if MODEL_NAME.search(comment.sub("", path.read_text()))]
    assert wrong == []


@pytest.mark.parametrize(
    "code",
    ["print(1)", "import os\nos.environ['A']", "from os import environ", "import sys\nsys.stderr"],
)
def test_an_impurity_is_found(code):
    assert list(impurities(ast.parse(code)))


def test_a_model_name_is_found_in_code_but_not_in_a_docstring():
    tree = ast.parse('"""Like Whisper."""\nkind = "qwen3"\n')
    assert [name for name in names_in_code(tree) if MODEL_NAME.search(name)] == ["qwen3"]
