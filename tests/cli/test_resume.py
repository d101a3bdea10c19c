"""A job of many recordings that stops midway, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_what_is_there_is_left_out(run, model, tmp_path):
    (tmp_path / "b.txt").write_text("by hand")
    argv = ("transcribe", "--resume", "--output-dir", str(tmp_path), "a.wav", "b.wav", "c.wav")
    ran = run(*argv)
    assert ran.code == 0
    assert [source for kind, (source, _) in model.events if kind == "transcribe"] == [
        "a.wav",
        "c.wav",
    ]
    assert "1 of 3 recordings are transcribed already" in ran.err
    assert (tmp_path / "b.txt").read_text() == "by hand"
    again = run(*argv)
    assert again.code == 0
    assert again.err == "stapes: all 3 recordings are transcribed already.\n"


def test_all_formats_must_be_there(run, model, tmp_path):
    (tmp_path / "a.srt").write_text("x")
    run("transcribe", "--resume", "--format", "srt,json", "--output-dir", str(tmp_path), "a.wav")
    assert len(model.events) == 2
    assert (tmp_path / "a.json").exists()


def test_without_files_there_is_nothing_to_go_by(run, model):
    ran = run("transcribe", "--resume", "a.wav")
    assert (ran.code, model.events) == (2, [])
    assert "--output-dir" in ran.err


def test_the_options_of_pieces_reach_the_model(run, model):
    run("transcribe", "--batch", "3", "--chunk-seconds", "12.5", "--no-vad", "a.wav")
    _, (_, options) = model.events[1]
    assert (options["batch"], options["chunk_seconds"], options["vad"]) == (3, 12.5, False)


def long_wav(path: Path) -> Path:
    """Ten digits, again and again, for minutes: more than is transcribed at once."""
    import wave

    with wave.open(str(EXAMPLES / "digits-5.wav"), "rb") as short:
        frames, rate = short.readframes(short.getnframes()), short.getframerate()
    with wave.open(str(path), "wb") as long:
        long.setnchannels(1)
        long.setsampwidth(2)
        long.setframerate(rate)
        for _ in range(400):
            long.writeframes(frames + np.zeros(3 * rate, np.int16).tobytes())
    return path


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_prints_what_is_done_and_leaves_no_file(tmp_path: Path):
    recording = long_wav(tmp_path / "long.wav")
    command = [sys.executable, "-m", "stapes", "transcribe", "--batch", "1", "--threads", "1"]
    command += ["--output-dir", str(tmp_path / "out"), str(recording)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert b"interrupted" in err
    assert b"Stopped before the end" in err
    assert out.startswith(b"nine zero zero eight seven")
    assert list((tmp_path / "out").iterdir()) == []
