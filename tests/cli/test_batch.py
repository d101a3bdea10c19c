"""`stapes batch`: manifests to results, ended and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stapes.batch.results import open_results
from stapes.batch.task import Outcome, Task
from stapes.cli.batch_progress import JobProgress
from stapes.options import TranscribeOptions

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXTS = {"digits-3.wav": "four five seven", "digits-5.wav": "nine zero zero eight seven"}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A manifest of two recordings and one that is not there, and a place for results."""
    manifest = tmp_path / "manifest.jsonl"
    entries = [{"audio": str(EXAMPLES / name), "id": name} for name in TEXTS]
    manifest.write_text("".join(json.dumps(e) + "\n" for e in [*entries, {"audio": "later.wav"}]))
    return manifest, tmp_path / "results.jsonl"


def lines(path: Path) -> dict[str, dict]:
    found = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert len({line["id"] for line in found}) == len(found)
    return {line["id"]: line for line in found}


def test_a_job_its_restart_and_its_second_try(run, files):
    manifest, out = files
    argv = ("batch", str(manifest), "--out", str(out), "--workers", "2", "--threads", "1")
    ran = run(*argv)
    assert (ran.code, ran.out) == (3, "")
    assert "packing tiny-en once for 2 workers" in ran.err
    assert "error: later.wav does not exist." in ran.err
    assert f"2 of 3 recordings are in {out}" in ran.err
    found = lines(out)
    assert {name: found[name]["text"] for name in TEXTS} == TEXTS
    assert {found[name]["model"] for name in TEXTS} == {"tiny-en"}
    assert found["later.wav"]["kind"] == "audio"
    assert sorted(os.listdir(out.parent)) == ["manifest.jsonl", "results.jsonl"]

    before = out.read_bytes()
    again = run(*argv)
    assert (again.code, out.read_bytes()) == (3, before)
    assert "3 of 3 recordings are done already" in again.err
    assert "1 failed; --retry-failed" in again.err

    (manifest.parent / "later.wav").write_bytes((EXAMPLES / "digits-3.wav").read_bytes())
    last = run(*argv, "--retry-failed")
    assert last.code == 0
    assert lines(out)["later.wav"]["text"] == "four five seven"
    assert len(lines(out)) == 3


def test_a_line_holds_what_transcribe_prints(run, files):
    manifest, out = files
    options = ("--threads", "1", "--context", "Ada", "--no-vad", "--chunk-seconds", "9")
    run("batch", str(manifest), "--out", str(out), *options)
    name = next(iter(TEXTS))
    printed = json.loads(run("transcribe", "--format", "json", *options, str(EXAMPLES / name)).out)
    line = lines(out)[name]
    assert list(line) == ["id", "audio", *printed]
    for each in (line, printed):
        del each["timings_s"]
    assert line == {"id": name, "audio": str(EXAMPLES / name), **printed}


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("absent", "--out", "r"), 2, "absent cannot be read"),
        (("bad", "--out", "r"), 2, 'line 2: "audio" is missing'),
        (("good", "--out", "good"), 2, "is the manifest itself"),
        (("good", "--out", "no/r"), 2, "No such file"),
        (("good", "--out", "notes"), 2, "line 1 of"),
        (("good", "--out", "r", "--language", "Elvish"), 2, "'Elvish' is not known"),
        (("good", "--out", "r", "--workers", "0"), 2, "0 is not in the range"),
        (("good", "--out", "r", "--model", "nope"), 4, "no model 'nope'"),
        (("good",), 2, "Missing option '--out'"),
    ],
)
def test_what_is_refused(run, tmp_path, monkeypatch, argv, code, message):
    monkeypatch.chdir(tmp_path)
    contents = {"good": '{"audio": "a"}\n', "bad": '{"audio": "a"}\n{"x": 1}\n', "notes": "hi\n"}
    for name, content in contents.items():
        Path(name).write_text(content)
    ran = run("batch", *argv)
    assert (ran.code, ran.out) == (code, ""), ran.err
    assert message in ran.err
    assert {name: Path(name).read_text() for name in contents} == contents


def test_two_jobs_do_not_write_one_file(run, files):
    manifest, out = files
    with open_results(out):
        ran = run("batch", str(manifest), "--out", str(out))
    assert ran.code == 2
    assert f"another job is writing {out}" in ran.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_ended_midway_the_same_command_goes_on(tmp_path, number, code):
    recording = str(EXAMPLES / "digits-10.flac")
    manifest, out = tmp_path / "m.jsonl", tmp_path / "r.jsonl"
    entries = [{"audio": recording, "id": str(n)} for n in range(16)]
    manifest.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    out.touch()
    command = [sys.executable, "-m", "stapes", "batch", str(manifest), "--out", str(out)]
    command += ["--workers", "2", "--threads", "1"]
    # A group of its own, all of which gets the signal, as from a terminal.
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as process:
        while out.read_bytes().count(b"\n") < 3:
            assert process.poll() is None
            time.sleep(0.005)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.kill()
        err = process.communicate(timeout=30)[1].decode()
    assert process.returncode == code, err
    done = out.read_bytes().count(b"\n")
    assert 3 <= done < 16
    if number == signal.SIGINT:
        assert f"interrupted: {done} of 16 recordings are done; the same command goes on" in err
        assert "Traceback" not in err
        assert sorted(os.listdir(tmp_path)) == ["m.jsonl", "r.jsonl"]
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0, again.stderr
    assert "recordings are done already" in again.stderr
    assert lines(out).keys() == {entry["id"] for entry in entries}
    assert sorted(os.listdir(tmp_path)) == ["m.jsonl", "r.jsonl"]


def test_progress_is_a_line_now_and_then(capfd):
    now = [100.0]
    progress = JobProgress(4, is_terminal=False, clock=lambda: now[0])
    task = Task("a", "a", "/a", TranscribeOptions())
    progress.count(Outcome(task, {}, audio_s=600.0))
    assert capfd.readouterr().err == ""
    now[0] += 60
    progress.count(Outcome.failed(task, "no", "audio"))
    line = "stapes: 2 of 4 recordings (1 failed), 10.0 s of audio a second, 0:01:00 left\n"
    assert capfd.readouterr().err == line
