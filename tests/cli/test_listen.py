"""`stapes listen`: microphone, pipe and file; lines, events and the line in place."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from audio.sounds import FLOAT, wav
from stapes.audio import read_audio
from stapes.cli import listen_sources
from stapes.cli.listen_output import TerminalOutput
from stapes.errors import CapacityError
from stapes.streaming import StreamEvent
from stapes.streaming.stream import Stream

EXAMPLES = Path(__file__).parents[2] / "examples"
FIVE = str(EXAMPLES / "digits-5.wav")
SAID = "nine zero zero eight seven"
FIELDS = ["type", "text", "start_s", "end_s", "language", "lag_s", "utterance"]


def pcm(name: str = "digits-5.wav") -> bytes:
    return (read_audio(EXAMPLES / name).samples * 32_767).astype("<i2").tobytes()


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)


def test_a_file_is_written_down_utterance_by_utterance(run):
    ran = run("listen", "--fast", str(EXAMPLES / "digits-10.flac"))
    assert ran.code == 0
    assert ran.out == "four four one nine seven nine zero seven two\nfive\n"
    assert ran.err == ""


def test_events_are_lines_of_json_and_the_finals_are_the_transcript(run):
    ran = run("listen", "--fast", "--json", "--step", "1", FIVE)
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert {event["type"] for event in events} == {"partial", "committed", "final"}
    for event in events:
        last = ["finish_reason", "words"] if event["type"] == "final" else ["step_s"]
        assert list(event) == [*FIELDS, *last]
        assert event["lag_s"] >= 0
    assert [e["text"] for e in events if e["type"] == "final"] == [SAID]
    assert "".join(e["text"] for e in events if e["type"] == "committed") == SAID
    assert ran.err == ""


@pytest.mark.parametrize("is_wav", [True, False])
def test_standard_input_is_pcm_or_wav(run, monkeypatch, is_wav):
    pipe(monkeypatch, Path(FIVE).read_bytes() if is_wav else pcm())
    assert run("listen", "-").out == f"{SAID}\n"


def test_raw_pcm_has_the_rate_that_is_given(run, monkeypatch):
    half = np.frombuffer(pcm(), "<i2").reshape(-1, 2).mean(axis=1).astype("<i2")
    pipe(monkeypatch, half.tobytes())
    ran = run("listen", "-", "--rate", "8000", "--json")
    (final,) = [e for e in map(json.loads, ran.out.splitlines()) if e["type"] == "final"]
    assert final["end_s"] == pytest.approx(4.6, abs=0.2)
    assert final["text"] == SAID


def test_a_file_is_heard_at_its_own_pace(run):
    started = time.monotonic()
    ran = run("listen", "--json", str(EXAMPLES / "digits-3.wav"))
    took = time.monotonic() - started
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert took >= read_audio(EXAMPLES / "digits-3.wav").duration_s
    assert " ".join(e["text"] for e in events if e["type"] == "final") == "four five seven"


def test_silence_prints_nothing(run, monkeypatch):
    pipe(monkeypatch, bytes(5 * 32_000))
    ran = run("listen", "-")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no-such.wav"], 3, "does not exist"),
        (["--fast"], 2, "--fast belongs to a FILE"),
        ([FIVE, "--device", "1"], 2, "--device is a microphone"),
        ([FIVE, "--rate", "8000"], 2, "--rate belongs to raw PCM"),
        ([FIVE, "--language", "Elvish"], 2, "Elvish"),
        (["-"], 2, "standard input (-) holds no audio"),
    ],
)
def test_what_cannot_be_is_told(run, monkeypatch, arguments, code, message):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    ran = run("listen", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_a_compressed_file_through_the_pipe_is_told(run, monkeypatch):
    pipe(monkeypatch, (EXAMPLES / "digits-10.flac").read_bytes())
    ran = run("listen", "-")
    assert ran.code == 3
    assert "let ffmpeg make WAV of it" in ran.err


def test_a_pipe_without_a_byte_is_told(run, monkeypatch):
    """As of a program before it that failed."""
    pipe(monkeypatch, b"")
    ran = run("listen", "-")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == "stapes: error: standard input holds no audio: it is empty (0 bytes).\n"


def test_ctrl_c_ends_the_audio_and_prints_what_was_heard():
    """Of a pipe that never ends."""
    command = [sys.executable, "-m", "stapes", "listen", "-", "--json", "--step", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(pcm()[: 4 * 32_000])
        process.stdin.flush()
        first = json.loads(process.stdout.readline())  # it listens by now
        process.send_signal(signal.SIGINT)
        events = [json.loads(line) for line in process.stdout]
        assert (process.wait(30), process.stderr.read()) == (0, b"")
    assert first["type"] == "partial"
    assert events[-1]["type"] == "final"
    assert events[-1]["text"].startswith("nine zero zero")


def test_what_was_heard_before_the_audio_broke_is_printed(run, tmp_path):
    """The error of the source comes last, and the utterance that it cut short before it."""
    samples = read_audio(FIVE).samples[: 4 * 16_000]
    broken = tmp_path / "broken.wav"
    broken.write_bytes(wav(np.append(samples, [np.nan]).astype("<f4").tobytes(), FLOAT, 32))
    ran = run("listen", "--fast", str(broken))
    assert ran.code == 3
    assert ran.out.startswith("nine zero zero")
    assert "not numbers" in ran.err


def test_an_error_of_a_look_ends_listen_behind_what_is_known(run, monkeypatch):
    """The first look fails; the rest is still read, and what waits is printed."""
    plain = Stream.poll
    failed: list[int] = []

    def poll(stream: Stream) -> list[StreamEvent]:
        events = plain(stream)
        if events and not failed:
            failed.append(len(events))
            raise CapacityError("no room for the cache.")
        return events

    monkeypatch.setattr(Stream, "poll", poll)
    ran = run("listen", "--fast", "--json", FIVE)
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 5
    assert events[-1]["type"] == "final"
    assert ran.err == "stapes: error: no room for the cache.\n"


# -- a microphone ----------------------------------------------------------------------------------


class Device:
    """In place of sounddevice: a microphone that hears a recording at once, and then silence."""

    opened: ClassVar[list[dict[str, Any]]] = []

    class PortAudioError(Exception):
        pass

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.opened.clear()

    def query_devices(self, device: object, kind: str) -> dict[str, object]:
        if device == "none":
            raise ValueError("No input device matching 'none'")
        return {"name": "a fake", "default_samplerate": 16_000.0}

    def RawInputStream(self, **options: Any) -> Any:
        self.opened.append(options)
        data = self.data

        class Opened:
            active = closed = False

            def start(self) -> None:
                self.active = True
                options["callback"](data, len(data) // 2, None, "")
                options["callback"](bytes(32_000), 16_000, None, "input overflow")

            def close(self) -> None:
                Device.opened[-1]["closed"] = True

        return Opened()


def test_the_microphone_is_the_default(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", Device(pcm()))
    plain = listen_sources.take
    waits: list[float] = []

    def take(blocks: Any, seconds: float) -> Any:
        block = plain(blocks, 0)
        if block is None and seconds:
            waits.append(seconds)
        if len(waits) > 2:
            os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C
        return block

    monkeypatch.setattr(listen_sources, "take", take)
    ran = run("listen", "--device", "2", "--rate", "16000")
    assert (ran.code, ran.out) == (0, f"{SAID}\n")
    assert ran.err == (
        "stapes: warning: a fake: The microphone lost audio 1 times (input overflow).\n"
    )
    (opened,) = Device.opened
    assert (opened["device"], opened["samplerate"], opened["channels"]) == (2, 16_000, 1)
    assert opened["closed"]


def test_a_microphone_that_is_not_there(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", Device(b""))
    ran = run("listen", "--device", "none")
    assert ran.code == 3
    assert "The microphone cannot be used: No input device matching 'none'" in ran.err


def test_a_microphone_that_does_not_start(run, monkeypatch):
    device = Device(b"")
    opened = device.RawInputStream()

    def start() -> None:
        raise device.PortAudioError("Device unavailable")

    opened.start = start
    monkeypatch.setattr(device, "RawInputStream", lambda **options: opened)
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    ran = run("listen")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == "stapes: error: The microphone cannot be used: Device unavailable.\n"


def test_sounddevice_that_is_not_there(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    ran = run("listen")
    assert ran.code == 2
    assert "pip install 'stapes[mic]'" in ran.err


def test_a_library_that_is_not_there(run, monkeypatch, tmp_path):
    (tmp_path / "sounddevice.py").write_text("raise OSError('PortAudio library not found')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    ran = run("listen")
    assert ran.code == 2
    assert "PortAudio library (Debian: libportaudio2): PortAudio library not found" in ran.err


# -- a terminal ------------------------------------------------------------------------------------


def test_a_terminal_has_one_line_that_is_rewritten(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "12")
    output = TerminalOutput("talk.wav")
    for kind, text in [
        ("partial", "one"),
        ("committed", "one two"),
        ("partial", " three four"),
        ("notice", "No audio has come."),
        ("final", "one two three\x1b[31m"),
        ("partial", "你好你好你好"),
    ]:
        output.show(StreamEvent(kind, text, 0.0, 1.0))
    output.close()
    clear = "\r\x1b[K"
    out, err = capfd.readouterr()
    assert out == (
        f"{clear}one{clear}one two{clear} three four{clear}{clear}one two three [31m\n"
        f"{clear}好你好你好{clear}"
    )
    assert err == "stapes: warning: talk.wav: No audio has come.\n"
