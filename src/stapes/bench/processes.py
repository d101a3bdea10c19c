"""Whole processes: how long they take, and what this one holds."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from stapes.errors import RequestError

_STATUS = Path("/proc/self/status")


def python(*arguments: str) -> str:
    """Run this Python with arguments; what it printed."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise RequestError(f"A measured process ended with {done.returncode}: {last}")
    return done.stdout


def seconds_of_python(*arguments: str) -> float:
    """Wall time of a Python process from its start to its end."""
    started = time.perf_counter()
    python(*arguments)
    return time.perf_counter() - started


def status_mb(name: str) -> float:
    """A line of this process's status, such as VmRSS, in MB."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"{_STATUS} has no {name}")
