"""The page of `stapes serve`, a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import stapes
from server.page.chromium import Page
from server.told import EXAMPLES, EXPECTED

NAME = "digits-3.wav"
PATIENCE_S = 60


@pytest.fixture
def process():
    """`stapes serve` at a free port."""
    search = [str(Path(stapes.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    started = subprocess.Popen(
        [sys.executable, "-m", "stapes", "serve", "--port", "0", "--threads", "1"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


def address(process: subprocess.Popen) -> str:
    """What it says when it serves."""
    said = ""
    for line in process.stderr:
        said += line
        if found := re.search(r"serving at (http://[\w.]+:\d+)", line):
            return found[1]
    raise AssertionError(f"it serves nothing: {said}")


def test_from_the_command_to_subtitles(process, browser, downloads: Path):
    page = Page(browser, address(process), downloads).open()
    page.choose(EXAMPLES / NAME)
    page.wait_for("done")
    assert page.segments == [EXPECTED[NAME]]
    assert page.saved("vtt").startswith(b"WEBVTT\n")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    page["again"].click()
    page.choose(EXAMPLES / NAME)
    assert "cannot be reached" in page.wait_for_problem()
    browser.get("about:blank")
