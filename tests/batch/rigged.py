"""A model that does what the name of a recording says; workers load it by name."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stapes import AudioError, RequestError, Timings, TokenCounts, Transcript
from stapes.batch.task import Outcome, Task
from stapes.options import TranscribeOptions


@dataclass(frozen=True)
class Rigged:
    """Says the name of the recording, after `delay_s`; notes in `log` what it begins, and who."""

    log: Path
    delay_s: float = 0.0
    name: str = "rigged"
    load_s: float = 0.0

    def transcribe(self, source: Any, **options: Any) -> Transcript:
        name = Path(source).stem
        with self.log.open("a") as file:
            file.write(f"{os.getpid()} {name}\n")
        time.sleep(self.delay_s)
        if name.startswith("fatal"):
            os.kill(os.getpid(), signal.SIGKILL)
        while name.startswith("endless") and not options["should_cancel"]():
            time.sleep(0.01)
        if name.startswith("damaged"):
            raise AudioError(f"{name} is damaged.")
        if name.startswith("bug"):
            raise KeyError("no such key")
        if name.startswith("large"):
            raise MemoryError
        return transcript(name, options["language"])


def transcript(text: str, language: str | None = None) -> Transcript:
    counts, timings = TokenCounts(1, 2, 3), Timings(0, 0, 0, 0, 0, 0, 0)
    return Transcript(text, language, 2.0, "rigged", "stop", False, (), (1,), counts, timings)


def load(log: Path, delay_s: float = 0.0) -> Rigged:
    return Rigged(log, delay_s)


def load_nothing() -> Rigged:
    raise RequestError("there is nothing to load.")


def load_and_die() -> Rigged:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def task(name: str, **options: Any) -> Task:
    return Task(name, f"{name}.wav", f"/nowhere/{name}.wav", TranscribeOptions(**options))


def outcome(name: str, text: str = "text") -> Outcome:
    return Outcome(task(name), {"text": text}, audio_s=2.0)


def pids(log: Path) -> set[int]:
    return {int(line.split()[0]) for line in log.read_text().splitlines()}


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
