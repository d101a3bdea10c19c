"""docs/server.md: its examples run, and its service files are well formed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from dockerfile_parse import DockerfileParser

import stapes
from models.vevo2.voice_setting import QUICK, recording
from server.serving import Running, serving
from server.test_listening import Factory
from stapes.audio import read_audio
from stapes.cli.root import root
from stapes.models.vevo2.request import VoiceOptions
from stapes.server.served import Served, Speaker
from text_models import QWEN3, TEMPLATE, random_tensors, write_folder
from vevo2_voice import write_voice

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
COMMANDS = click.Context(root, info_name="stapes", **root.context_settings)
DOC = (ROOT / "docs/server.md").read_text(encoding="utf-8")
EXPECTED = json.loads((EXAMPLES / "expected.json").read_text("utf-8"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = write_folder(tmp_path_factory.mktemp("text"), QWEN3, random_tensors(QWEN3))
    text = stapes.load_text(folder, threads=1)
    text.chat_template = TEMPLATE
    voice = stapes.load_voice(write_voice(tmp_path_factory.mktemp("voice") / "Vevo2"), threads=1)
    anna = {"anna": recording(text="la la")}
    served = Served(
        {"tiny-en": stapes.load()},
        {"tiny-text": text},
        open_stream=Factory(),
        speakers={"RMSnow/Vevo2": Speaker(voice, anna, VoiceOptions(**QUICK))},
    )
    with serving(served) as server:
        yield server


def here(code: str, running: Running) -> str:
    assert "http://127.0.0.1:8000" in code or "ws://127.0.0.1:8000" in code
    return code.replace("127.0.0.1:8000", running.url.removeprefix("http://"))


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_as_many_examples_as_are_run():
    assert [len(blocks(name)) for name in ("sh", "python", "js")] == [4, 3, 2]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(running):
    _, whole, stream, _ = blocks("sh")
    assert "four five seven" in output("bash", "-c", here(whole, running))
    events = output("bash", "-c", here(stream, running)).split("\n\n")
    *deltas, done = [json.loads(event.removeprefix("data: ")) for event in events if event]
    assert {event["type"] for event in deltas} == {"transcript.text.delta"}
    assert done["type"] == "transcript.text.done"
    assert done["text"] == EXPECTED["digits-10.flac"]


def test_python(running):
    speech, text, _ = blocks("python")
    assert EXPECTED["digits-10.flac"] in output(sys.executable, "-c", here(speech, running))
    assert output(sys.executable, "-c", here(text, running))


def test_speech(running, tmp_path):
    """Noise: the weights are random."""
    *_, code = blocks("python")
    path = tmp_path / "morning.wav"
    here_code = here(code, running).replace("morning.wav", str(path))
    assert output(sys.executable, "-W", "error", "-c", here_code) == ""
    samples = read_audio(path).samples
    assert 32_000 <= samples.size <= 32_960  # 25 codes, 12.5 a second, and up to 3 frames of 20 ms
    assert samples.any()


def test_the_command_for_speech_is_understood():
    from stapes.cli.serve import command
    from stapes.cli.voices import check_voices

    line = blocks("sh")[-1]
    given = command.make_context("serve", line.split()[2:], parent=COMMANDS).params
    assert given["voices"] == ("anna=anna.wav:anna.txt",)
    check_voices(given["voice_model"], given["voices"])


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_javascript(running, tmp_path):
    upload, live = blocks("js")
    path = tmp_path / "upload.mjs"
    path.write_text(here(upload, running))
    assert output("node", str(path)).strip() == EXPECTED["digits-5.wav"]
    version = int(re.search(r"\d+", output("node", "--version"))[0])
    if version < 20:
        pytest.skip(f"Node {version} has no WebSocket")
    path = tmp_path / "live.mjs"
    path.write_text(here(live, running))
    flags = ["--experimental-websocket", "--no-warnings"] if version < 22 else []
    lines = output("node", *flags, str(path)).split("\n")
    assert lines[:2] == ["committed w0", "committed w1"]
    assert lines[2:4] == ["final 16000", "done "]


def test_every_route_is_in_the_table(running):
    table = DOC.split("## What there is")[1].split("## ")[0]
    for route in running.app.web.routes:
        path = getattr(route, "path", "").split("{")[0].rstrip("/")
        assert path in table, path


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit(tmp_path):
    """Verified with a program that is there in place of the one that would be."""
    unit = (EXAMPLES / "server/stapes.service").read_text()
    assert "ExecStart=/opt/stapes/bin/stapes serve" in unit
    path = tmp_path / "stapes.service"
    path.write_text(unit.replace("/opt/stapes/bin/stapes", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True
    )
    about = [line for line in done.stderr.splitlines() if "stapes.service" in line]
    assert (done.returncode, about) == (0, []), done.stderr
    path.write_text(unit.replace("/opt/stapes/bin/stapes", "/bin/true").replace("=yes", "=perhaps"))
    wrong = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True
    )
    assert "stapes.service" in wrong.stderr


KNOWN = {
    *("FROM", "RUN", "CMD", "COPY", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"),
    "COMMENT",
}


def test_the_dockerfile(tmp_path):
    parser = DockerfileParser(str(tmp_path))
    parser.content = (EXAMPLES / "server/Dockerfile").read_text()
    found = [entry for entry in parser.structure if entry["instruction"] != "COMMENT"]
    assert {entry["instruction"] for entry in found} <= KNOWN
    assert found[0]["instruction"] == "FROM"
    assert parser.parent_images == ["python:3.12-slim", "python:3.12-slim"]
    arguments = [
        json.loads(entry["value"])
        for entry in found
        if entry["instruction"] in ("ENTRYPOINT", "CMD")
    ]
    (health,) = [entry["value"] for entry in found if entry["instruction"] == "HEALTHCHECK"]
    check = json.loads(health.split("CMD", 1)[1])
    compile(check[2], "health", "exec")
    from stapes.cli.serve import command

    entry, default = arguments
    given = command.make_context("serve", [*entry[2:], *default], parent=COMMANDS).params
    assert (given["host"], given["models"]) == ("0.0.0.0", ("tiny-en",))


def test_the_command_of_the_unit_is_understood():
    from stapes.cli.serve import command

    unit = (EXAMPLES / "server/stapes.service").read_text()
    line = re.search(r"^ExecStart=\S+ serve (.*)$", unit, re.MULTILINE)[1]
    assert command.make_context("serve", line.split(), parent=COMMANDS).params["port"] == 8000
