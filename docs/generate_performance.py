"""Write docs/performance.md from its template and the figures of the last `make bench`.

`generate_performance.py [FIGURES]`. The template's `{{name}}` lines become tables; all the rest
of it is kept by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import performance_tables as tables
from performance_roofline import roofline

HERE = Path(__file__).parent
TARGET = HERE / "performance.md"
TEMPLATE = HERE / "performance.template.md"
LATEST = HERE / "benchmarks" / "latest.jsonl"
PICTURE = HERE / "benchmarks" / "trace.svg"

_PARTS: dict[str, Callable[[tables.Figures], str]] = {
    "machine": tables.machine,
    "targets": tables.targets,
    "kernels": lambda figures: tables.kernels(figures, "kernels"),
    "kernels-best": lambda figures: tables.kernels(figures, "kernels-best"),
    "kernels-9": lambda figures: tables.kernels(figures, "kernels-9"),
    "versus": tables.versus,
    "runs": tables.runs,
    "stages": tables.stages,
    "speak": tables.speak,
    "drawn": tables.drawn,
    "long": tables.long,
    "stream": tables.stream,
    "serve": tables.serve,
    "roofline": roofline,
}


def read_figures(path: Path) -> tables.Figures:
    """Step -> figures; empty when there are none yet."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["step"]: line for line in lines}


def render(figures: tables.Figures, has_picture: bool) -> str:
    """The page."""
    page = TEMPLATE.read_text(encoding="utf-8")
    parts = {name: part(figures) for name, part in _PARTS.items()}
    picture = "![A trace of one run](benchmarks/trace.svg)\n"
    parts["picture"] = picture if has_picture else tables.NOTHING
    for name, text in parts.items():
        page = page.replace(f"{{{{{name}}}}}\n", text)
    return page


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else LATEST
    TARGET.write_text(render(read_figures(source), PICTURE.exists()), encoding="utf-8")
