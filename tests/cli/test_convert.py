"""`stapes convert`: what reaches the conversion, and what is left behind when it is ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from stapes.models import convert as conversion
from stapes.options import RuntimeOptions
from stapes.weights import atomic

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def calls(monkeypatch) -> list[tuple]:
    found: list[tuple] = []

    def convert(source: str, target: Path, options: RuntimeOptions, *, force: bool) -> None:
        found.append((source, target, options, force))
        target.write_bytes(b"x" * 1_500_000)

    monkeypatch.setattr(conversion, "convert", convert)
    return found


def test_defaults(run, calls, tmp_path):
    ran = run("convert", "tiny-en", str(tmp_path / "x"))
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"stapes: wrote {tmp_path / 'x'} (1.5 MB)\n"
    assert calls == [("tiny-en", tmp_path / "x", RuntimeOptions(), False)]


def test_every_option_reaches_the_conversion(run, calls, tmp_path):
    options = ("--weights", "q4", "--encoder-weights", "bf16", "--threads", "2", "--force")
    assert run("convert", *options, "folder", str(tmp_path / "x")).code == 0
    wanted = RuntimeOptions("q4", threads=2, encoder_weights="bf16")
    assert calls == [("folder", tmp_path / "x", wanted, True)]


def test_from_model_to_text(run, tmp_path):
    file, wav = str(tmp_path / "größe 🦉.stapes"), min(EXAMPLES.glob("*.wav"))
    assert run("convert", "tiny-en", file, "--threads", "1").code == 0
    ran = run("transcribe", "--model", file, "--threads", "1", str(wav))
    assert ran.code == 0
    assert ran.out == run("transcribe", "--threads", "1", str(wav)).out


def test_no_device_is_replaced(run, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ran = run("convert", "tiny-en", str(pipe), "--force")
    assert (ran.code, ran.err) == (
        2, f"stapes: error: {pipe} is no ordinary file, which alone can be replaced.\n"
    )  # fmt: skip
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("tiny-en",), 2, "Missing argument 'DST'"),
        (("tiny-en", "x", "--weights", "q3"), 2, "'q3' is not one of"),
        (("tiny-en", "there"), 2, "there exists; --force replaces it"),
        (("absent", "x"), 4, "no model 'absent'"),
        (("there", "x"), 4, "neither a converted model nor GGUF"),
        (("tiny-en", "no/x"), 2, "folder that does not exist"),
    ],
)
def test_what_is_refused(run, tmp_path, monkeypatch, argv, code, message):
    monkeypatch.chdir(tmp_path)
    Path("there").write_bytes(b"precious")
    ran = run("convert", *argv)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert os.listdir(tmp_path) == ["there"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing_half_made(run, tmp_path, monkeypatch, number):
    handlers = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    monkeypatch.setattr(atomic.os, "fsync", lambda descriptor: os.kill(os.getpid(), number))
    ran = run("convert", "tiny-en", str(tmp_path / "x"), "--threads", "1")
    assert (ran.code, ran.err.strip()) == (130, "stapes: error: interrupted.")
    assert os.listdir(tmp_path) == []
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_a_full_disk(run, tmp_path, monkeypatch):
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda place: SimpleNamespace(free=7))
    ran = run("convert", "tiny-en", str(tmp_path / "x"), "--threads", "1")
    assert (ran.code, ran.out) == (5, "")
    assert "but the disk has 7 left" in ran.err
    assert os.listdir(tmp_path) == []
