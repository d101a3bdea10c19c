"""Progress: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from stapes.cli.progress import SilentReporter, reporter_for_stderr


def test_no_terminal_no_bar():
    assert isinstance(reporter_for_stderr(), SilentReporter)


def test_a_closed_stderr_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert isinstance(reporter_for_stderr(), SilentReporter)


SCRIPT = """
from stapes.cli.progress import reporter_for_stderr
reporter = reporter_for_stderr()
with reporter.loading("[b]model"):
    pass
with reporter.recording("[b]talk.wav") as on_progress:
    on_progress(3.0, 12.0)
with reporter.speaking("[b]o.wav") as show:
    from stapes.models.vevo2.sound import VoiceProgress
    show(VoiceProgress(piece=1, pieces=2, stage="mel", done=1, total=4))
"""


def test_a_bar_on_a_terminal_shows_the_name_and_the_seconds():
    ours, theirs = pty.openpty()
    env = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], stderr=theirs, stdout=subprocess.PIPE, env=env
    )
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, b"")
    assert "[b]model" in shown
    assert "[b]talk.wav" in shown
    assert "3 of 12 s" in shown
    assert "[b]o.wav, piece 2 of 2: step 1 of 4" in shown
    assert "62 %" in shown
