"""Workers that are real processes, and a job that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from batch import rigged
from batch.rigged import is_running, pids, task
from stapes.batch.processes import Processes
from stapes.batch.task import Outcome
from stapes.batch.team import Team
from stapes.errors import CapacityError, RequestError

TESTS = Path(__file__).parents[1]


def run(load, names: list[str], workers: int = 2) -> dict[str, Outcome]:
    with Processes(load) as processes:
        tasks = [task(name, language="German") for name in names]
        return {o.task.id: o for o in Team(processes, workers, tasks).outcomes(lambda: False)}


def test_whatever_happens_to_one_recording_the_others_are_done(tmp_path):
    log = tmp_path / "log"
    names = ["a", "fatal", "b", "damaged", "bug", "c", "large", "d"]
    outcomes = run(partial(rigged.load, log), names)
    assert outcomes.keys() == set(names)
    for name in "abcd":
        fields = outcomes[name].fields
        assert (fields["text"], fields["language"], fields["model"]) == (name, "German", "rigged")
        assert (outcomes[name].kind, outcomes[name].audio_s) == (None, 2.0)
    assert outcomes["damaged"].fields == {"error": "damaged is damaged.", "kind": "audio"}
    assert outcomes["bug"].fields == {"error": "KeyError: 'no such key'", "kind": "unexpected"}
    assert outcomes["large"].kind == "capacity"
    assert outcomes["fatal"].kind == "worker"
    assert "was ended by SIGKILL, as happens when memory runs out" in str(outcomes["fatal"].fields)
    lines = log.read_text().splitlines()
    assert sorted(line.split()[1] for line in lines) == sorted([*names, "fatal"])
    died = {line.split()[0] for line in lines if line.endswith(" fatal")}
    assert len(died) == 2
    assert not any(map(is_running, pids(log)))


def test_a_model_that_cannot_be_loaded():
    with pytest.raises(RequestError, match="nothing to load"):
        run(rigged.load_nothing, ["a"])


def test_workers_that_die_while_they_load():
    with pytest.raises(CapacityError, match=r"3 workers in a row .* SIGKILL"):
        run(rigged.load_and_die, ["a"], workers=1)


def job(folder: Path, delay_s: float) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    names = ("manifest", "out", "log")
    arguments = [*(str(folder / name) for name in names), str(delay_s)]
    command = [sys.executable, "-m", "batch.rigged_job", *arguments]
    return subprocess.Popen(command, cwd=TESTS, env=environment, stderr=subprocess.PIPE)


def test_killed_again_and_again_nothing_is_lost_or_done_twice(tmp_path):
    names = [f"r{number}" for number in range(60)]
    (tmp_path / "manifest").write_text("".join(f'{{"audio": "{name}"}}\n' for name in names))
    out, log = tmp_path / "out", tmp_path / "log"
    out.touch()
    for aim in (1, 12, 30):
        with job(tmp_path, delay_s=0.03) as process:
            while out.read_bytes().count(b"\n") < aim:
                assert process.poll() is None, process.communicate()
                time.sleep(0.004)
            process.kill()
        _wait_until_gone(pids(log))
    before = out.read_bytes()
    with job(tmp_path, delay_s=0.0) as process:
        _, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint) == (0, b"")
    assert out.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    ids = [json.loads(line)["id"] for line in out.read_bytes().splitlines()]
    assert sorted(ids) == sorted(names)
    # Done twice are at most those that two workers had in hand at each of three ends, or had just
    # sent to a process that was gone.
    assert len(log.read_text().splitlines()) <= len(names) + 3 * 4


def test_a_worker_whose_job_is_gone_ends_in_the_middle_of_a_recording(tmp_path):
    (tmp_path / "manifest").write_text('{"audio": "endless"}\n')
    log = tmp_path / "log"
    log.touch()
    with job(tmp_path, delay_s=0.0) as process:
        while not pids(log):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.kill()
    try:
        _wait_until_gone(pids(log))
    finally:
        for pid in filter(is_running, pids(log)):
            os.kill(pid, signal.SIGKILL)


def _wait_until_gone(workers: set[int]) -> None:
    """Workers whose job is gone end by themselves, without a word."""
    deadline = time.monotonic() + 10
    while any(map(is_running, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_at_a_terminal_does_not_reach_the_workers(tmp_path):
    log = tmp_path / "log"
    resource_tracker._resource_tracker._stop()  # as in a program's first start of a process
    with Processes(partial(rigged.load, log, 0.5)) as processes:
        heard = []
        for outcome in Team(processes, 1, [task("a"), task("b")]).outcomes(lambda: False):
            heard.append((outcome.task.id, outcome.kind))
            for pid in pids(log):
                os.kill(pid, signal.SIGINT)
    assert heard == [("a", None), ("b", None)]
    assert len(pids(log)) == 1
