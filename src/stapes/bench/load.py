"""`stapes bench load`: from a process's start to a model that is ready, and its memory."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stapes.bench.checkpoint import write_checkpoint
from stapes.bench.processes import python

Progress = Callable[[str], None]


@dataclass(frozen=True)
class LoadBench:
    """What to load: a bundled model's name, a checkpoint's folder, or a converted file.

    Attributes:
        options: keyword arguments of `stapes.load`.
        seconds: of the noise that is transcribed, so that every weight has been touched.
    """

    model: str
    options: dict[str, object]
    seconds: float
    rounds: int


def run(bench: LoadBench) -> dict[str, object]:
    """Medians of so many processes; one before them fills the page cache."""
    runs = [_child(bench) for _ in range(bench.rounds + 1)][1:]
    figures = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    beyond = figures["rss_peak_mb"] - figures["weights_mb"] - figures["kv_mb"]
    return {
        "bench": "load",
        "model": Path(bench.model).name,
        **{name: round(value, 3 if name.endswith("_s") else 1) for name, value in figures.items()},
        "rss_beyond_weights_and_kv_mb": round(beyond, 1),
    }


def _child(bench: LoadBench) -> dict[str, float]:
    arguments = (bench.model, json.dumps(bench.options), str(bench.seconds))
    start_ns = time.perf_counter_ns()
    printed = python("-m", "stapes.bench.load_child", str(start_ns), *arguments)
    found: dict[str, float] = json.loads(printed)
    return found


@contextmanager
def converted(synthetic: str, weights: str, progress: Progress) -> Iterator[str]:
    """A converted file of a synthetic model, in a temporary folder (several GB for a while)."""
    with tempfile.TemporaryDirectory(prefix="stapes-bench-") as name:
        folder, file = Path(name) / "checkpoint", Path(name) / f"{synthetic}-{weights}.stapes"
        folder.mkdir()
        progress(f"Writing a checkpoint of {synthetic} with random weights")
        write_checkpoint(folder, synthetic)
        progress(f"Converting it to {weights}")
        python("-m", "stapes", "convert", str(folder), str(file), "--weights", weights)
        for path in folder.iterdir():
            path.unlink()
        yield str(file)
