"""Timing whole processes."""

from __future__ import annotations

import subprocess
import sys
import time

from stapes.errors import RequestError


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
