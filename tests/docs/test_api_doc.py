"""docs/api.md: its code runs, and the names that it lists are the public ones."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

import stapes
import stapes.decoder
from decoder.tiny import random_tensors
from text_models import QWEN2, write_gguf
from text_models import random_tensors as text_tensors
from vevo2_voice import write_voice

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api.md"
TEXT = PAGE.read_text(encoding="utf-8")


LOADERS = (stapes.load, stapes.load_aligner, stapes.load_text, stapes.load_voice)
MADE = (*LOADERS, stapes.stream, stapes.StreamPolicy)


def listed(module: str) -> list[str]:
    """The names in the first column of the table under a module's heading."""
    section = TEXT.split(f"## Names of `{module}`\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


@pytest.mark.parametrize("module", [stapes, stapes.decoder])
def test_the_names_are_the_public_ones(module: Any):
    assert sorted(listed(module.__name__)) == sorted(module.__all__)


def callables() -> Iterator[tuple[str, Any, str]]:
    """Functions, classes and methods by name, each with the text that explains it."""
    decoder = [getattr(stapes.decoder, name) for name in stapes.decoder.__all__]
    for each in (*MADE, *decoder):
        about = each.__doc__ or ""
        if inspect.isfunction(each) or isinstance(each, type):
            yield each.__qualname__, each, about
        for name, method in vars(each).items() if isinstance(each, type) else ():
            if name[0] != "_" and inspect.isfunction(method):
                yield method.__qualname__, method, about + (method.__doc__ or "")


def test_docstrings_speak_of_every_argument():
    silent = [
        f"{name}({argument})"
        for name, called, about in callables()
        for argument in inspect.signature(called).parameters
        if argument != "self" and not re.search(rf"\b{argument}\b", about)
    ]
    assert silent == []


def test_what_the_page_links_to_is_there():
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


def blocks() -> list[tuple[int, str]]:
    """Code of the page: the line where it begins, and itself."""
    found = re.finditer(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [(TEXT.count("\n", 0, block.start(1)), block[1]) for block in found]


def write_files(folder: Path) -> None:
    """What the code opens, under the names that it uses."""
    shutil.copy(ROOT / "examples" / "digits-3.wav", folder / "talk.wav")
    write_gguf(folder / "qwen2.5.gguf", QWEN2, text_tensors(QWEN2))
    shutil.copy(ROOT / "examples" / "digits-5.wav", folder / "anna.wav")
    write_voice(folder / "Vevo2")


def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From top to bottom in one namespace; the checkpoint is made when its spec is there."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "api"}
    checkpoint = tmp_path / "model.safetensors"
    for line, code in blocks():
        if "spec" in namespace and not checkpoint.exists():
            save_file(random_tensors(namespace["spec"]), checkpoint)
        exec(compile("\n" * line + code, str(PAGE), "exec"), namespace)
    assert len(blocks()) > 10
    assert {"answer", "turn", "drafted", "stopped", "finished", "pool"} <= set(namespace)
    assert namespace["transcript"].text
    assert len(set(namespace["result"].token_ids)) > 5
