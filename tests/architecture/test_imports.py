"""Imports point one way, as docs/design says."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

# From the bottom up. A part may import any part of a lower level, and itself.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("errors", "options", "system"),
    ("tensors",),
    ("weights",),
    ("graph",),
    ("decoder", "audio", "text"),
    ("models",),
    ("streaming", "output"),
    ("stapes", "api"),  # the public names: `import stapes`
    ("cli", "server", "bench", "batch", "__main__"),
)
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}

# Neighbours on one level that know each other.
NEIGHBOURS = {
    ("options", "errors"),  # options are validated where they are made
    ("stapes", "api"),
    ("__main__", "cli"),
    ("cli", "bench"),  # each is a command
    ("cli", "batch"),
    ("cli", "server"),
    ("bench", "server"),  # which it measures
}

# The compiled core is reached through these alone.
NATIVE = {"graph", "weights"}

# Models, each in a folder of its own.
FAMILIES = {folder.name for folder in (ROOT / "src/stapes/models").iterdir() if folder.is_dir()}

# What an extra brings: a benchmark's peers, the cluster of `stapes batch --ray`, a microphone.
OPTIONAL = {
    "stapes.batch.cluster": {"ray"},
    "stapes.cli.listen_sources": {"sounddevice"},
    "stapes.bench.versus": {"torch", "transformers"},
    "stapes.bench.versus_fidelity": {"transformers"},
    "stapes.bench.versus_ggml": {"libggml"},
    "stapes.bench.versus_speak": {"torch"},
}

# Parts of the package that need an extra.
EXTRAS = {"server": "server"}


def imported_by(requirements: list[str]) -> set[str]:
    """The names under which packages are imported."""
    return {re.match(r"[\w-]+", text)[0].replace("-", "_") for text in requirements}


def allowed(importer: str, imported: str) -> bool:
    if importer == imported:
        return True
    if imported == "_native":
        return importer in NATIVE
    return LEVEL[imported] < LEVEL[importer] or (importer, imported) in NEIGHBOURS


def part(name: str) -> str | None:
    """The part that `stapes.x.y` belongs to; a public name of `stapes` belongs to the package."""
    package, *rest = name.split(".")
    if package != "stapes":
        return None
    return rest[0] if rest and rest[0] in {*LEVEL, "_native"} else "stapes"


def family(name: str) -> str | None:
    """`qwen3_asr` of stapes.models.qwen3_asr.encoder; None of what models share."""
    match = re.match(r"stapes\.models\.(\w+)", name)
    return match[1] if match and match[1] in FAMILIES else None


def test_every_part_has_a_level(modules):
    assert {module.part for module in modules} <= set(LEVEL)


def test_imports_point_downwards(modules):
    wrong = [
        f"{module.name} imports {name}"
        for module in modules
        for name in module.imports()
        if (imported := part(name)) and not allowed(module.part, imported)
    ]
    assert wrong == []


def test_one_model_does_not_import_another(modules):
    wrong = [
        f"{module.name} imports {name}"
        for module in modules
        for name in module.imports()
        if family(module.name) and family(name) not in {None, family(module.name)}
    ]
    assert wrong == []


def test_only_what_the_package_depends_on_is_imported(modules):
    """Not torch or transformers, above all: those are oracles of the tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = imported_by(project["dependencies"])
    known = {"stapes", *declared, *sys.stdlib_module_names}
    extras = {p: imported_by(project["optional-dependencies"][e]) for p, e in EXTRAS.items()}
    wrong = [
        f"{module.name} imports {name}"
        for module in modules
        for name in module.imports()
        if name.split(".")[0]
        not in known | OPTIONAL.get(module.name, set()) | extras.get(module.part, set())
    ]
    assert wrong == []


def test_the_rules_can_fail():
    assert allowed("models", "tensors")
    assert not allowed("tensors", "models")
    assert not allowed("audio", "text")
    assert not allowed("models", "cli")
    assert not allowed("output", "stapes")
    assert not allowed("cli", "_native")
    assert part("stapes.load") == "stapes"
    assert part("stapes.models.registry.load") == "models"
    assert family("stapes.models.registry") is None
