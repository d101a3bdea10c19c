"""Run the benchmarks of docs/performance.md and keep their figures: `make bench`.

`run_benchmarks.py [STEP ...]` runs the steps that are named, all of them by default, or with
`missing` those that have no figures yet. Every step's line replaces the one that
docs/benchmarks/latest.jsonl holds of it as soon as it is done, so that nothing is lost when a later
step fails or is interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stapes import __version__

ROOT = Path(__file__).parents[1]
LATEST = ROOT / "docs" / "benchmarks" / "latest.jsonl"
TRACE = ROOT / "build" / "bench" / "trace.json"
PICTURE = ROOT / "docs" / "benchmarks" / "trace.svg"

_AVX2 = "--instruction-set avx2"
# With our AVX2 kernels runs the sgemm that OpenBLAS would choose on a machine without AVX-512.
_AVX2_BLAS = {"OPENBLAS_CORETYPE": "Haswell"}
# name -> arguments of `stapes bench`. The targets are set for AVX2; what the best instruction set
# of the machine gives stands beside it.
STEPS: dict[str, str] = {
    "startup": "startup --rounds 9",
    "load": "load --synthetic qwen3-asr-0.6b --rounds 5",
    "kernels": f"kernels {_AVX2} --versus numpy --versus ggml --rounds 7",
    "kernels-best": "kernels --rounds 7",
    "kernels-9": "kernels --format q8 --activation-bits 9 --rounds 7",
    "decoder-400": f"decoder {_AVX2} --positions 400 --versus transformers --rounds 7",
    "decoder-8000": f"decoder {_AVX2} --positions 8000 --rounds 5",
    "decoder-batch": f"decoder {_AVX2} --positions 400 --batch 8 --rounds 5",
    "draft": f"draft {_AVX2} --positions 400 --tokens 64 --rounds 5",
    "long": "long --rounds 1",
    "decoder-best": "decoder --positions 400 --rounds 7",
    "asr": f"asr {_AVX2} --versus transformers --rounds 3",
    "asr-best": "asr --rounds 3",
    "vevo2-q8": "decoder --synthetic vevo2-ar --weights q8 --versus transformers --rounds 2",
    "vevo2-bf16": "decoder --synthetic vevo2-ar --weights bf16 --versus transformers --rounds 2",
    "speak": "speak --versus torch --rounds 1",
    "tokenize": "tokenize --versus torch --rounds 1",
    "stream": "stream",
    "serve": "serve",
    "trace": f"asr {_AVX2} --seconds 10 --tokens 6 --rounds 1 --trace {TRACE.relative_to(ROOT)}",
}


def main() -> int:
    """Run what was asked for; the exit code of the first step that fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join([*STEPS, "missing"]))
    wanted = chosen(parser.parse_args().steps, recorded(LATEST))
    keep(LATEST, "machine", machine())
    try:
        return next((code for name in wanted if (code := run(name)) != 0), 0)
    finally:
        script("generate_performance.py")


def run(name: str) -> int:
    """Run a step and keep its figures; its exit code."""
    environment = _AVX2_BLAS if _AVX2 in STEPS[name] else {}
    shown = "".join(f"{variable}={value} " for variable, value in environment.items())
    print(f"\n$ {shown}stapes bench {STEPS[name]}", flush=True)
    TRACE.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "stapes", "bench", *STEPS[name].split()]
    code, line = last_line(command, environment)
    if code == 0:
        keep(LATEST, name, {"environment": environment, **json.loads(line)})
    if code == 0 and name == "trace":
        script("generate_trace_picture.py", str(TRACE), str(PICTURE))
    return code


def script(name: str, *arguments: str) -> None:
    """Run a script of docs/."""
    subprocess.run([sys.executable, str(ROOT / "docs" / name), *arguments], check=True)


def last_line(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a command in the project's folder, show what it prints; exit code and last line."""
    last, variables = "", {**os.environ, **environment}
    with subprocess.Popen(
        command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            last = line
    return process.returncode, last


def chosen(names: list[str], figures: dict[str, Any]) -> list[str]:
    """The steps to run, in the table's order."""
    unknown = sorted(set(names) - {*STEPS, "missing"})
    if unknown:
        sys.exit(f"no such step: {', '.join(unknown)}; there are {', '.join(STEPS)}, missing")
    asked = set(names or STEPS)
    if "missing" in asked:
        asked |= set(STEPS) - set(figures)
    return [name for name in STEPS if name in asked]


def recorded(path: Path) -> dict[str, dict[str, Any]]:
    """The figures of every step that the file holds."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["step"]: line for line in lines}


def keep(path: Path, name: str, figures: dict[str, Any]) -> None:
    """Replace a step's line; the file is always whole."""
    lines = recorded(path) | {name: {"step": name, **figures}}
    order = ["machine", *STEPS]
    ordered = [lines[step] for step in sorted(lines, key=order.index)]
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text("".join(json.dumps(line) + "\n" for line in ordered), encoding="utf-8")
    new.replace(path)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": _caches(),
        "memory_gb": round(int((_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) / 1e6),
        "system": platform.system(),
        "python": platform.python_version(),
        "stapes": __version__,
        **{package: _version(package) for package in ("numpy", "torch", "transformers")},
    }


def _caches() -> str:
    """Sizes of the first core's caches, as the kernel tells them."""
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (index / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found)


def _field(path: str, name: str) -> str | None:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except ImportError:
        return None


if __name__ == "__main__":
    sys.exit(main())
