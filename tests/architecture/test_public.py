"""The public names, and what importing them does to the host program: nothing."""

from __future__ import annotations

import subprocess
import sys

import stapes

PUBLIC = [
    "AudioError",
    "CapacityError",
    "ModelError",
    "RequestError",
    "SpeechModel",
    "StapesError",
    "StreamEvent",
    "StreamPolicy",
    "Timings",
    "TokenCounts",
    "Transcript",
    "__version__",
    "load",
    "load_aligner",
    "load_text",
    "load_voice",
    "stream",
]


def test_the_public_names_are_those_that_the_readme_documents():
    assert stapes.__all__ == PUBLIC
    assert all(hasattr(stapes, name) for name in PUBLIC)


SIDE_EFFECTS = """
import logging, os, signal, sys, threading, warnings

def state():
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)]
    return (
        threading.active_count(), len(os.listdir("/proc/self/task")), dict(os.environ), os.getcwd(),
        list(warnings.filters), logging.root.level, list(logging.root.handlers), handlers,
        sys.excepthook, list(sys.path), sys.getrecursionlimit(), os.listdir("/proc/self/fd"),
    )

before = state()
import stapes
assert state() == before
heavy = {"numpy", "click", "rich", "av", "soxr", "tokenizers", "huggingface_hub", "torch",
         "transformers", "stapes._native", "stapes.models.registry"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def test_importing_has_no_side_effects():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SIDE_EFFECTS], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
