"""Paths, names, bytes and streams."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from audio import sounds
from stapes.audio import read_audio
from stapes.errors import AudioError, CapacityError, RequestError

WAV = sounds.wav(sounds.s16(sounds.tone(0.5)))


@pytest.mark.parametrize(
    "name",
    [
        "Grüße.wav",
        "録音.wav",
        "🎙.wav",
        "with space.wav",
        "-leading.wav",
        "http:clip.wav",
        "50%d.wav",
    ],
)
def test_names_of_every_kind(tmp_path, monkeypatch, name):
    (tmp_path / name).write_bytes(WAV)
    monkeypatch.chdir(tmp_path)
    for source in (name, str(tmp_path / name), tmp_path / name):
        assert read_audio(source).duration_s == 0.5
    (tmp_path / name).write_bytes(b"no")
    with pytest.raises(AudioError) as caught:
        read_audio(tmp_path / name)
    assert str(caught.value).startswith(f"{name} is not a recording")


def test_a_name_that_is_not_utf_8_is_shown_without_breaking_the_terminal(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff\x1b[31m.wav"
    with pytest.raises(AudioError, match=r"does not exist") as caught:
        read_audio(os.fsdecode(path))
    str(caught.value).encode("utf-8")
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "clip.wav does not exist."),
        (lambda path: path.mkdir(), "clip.wav is a folder, not a recording."),
        (lambda path: path.touch(), "clip.wav holds no audio: it is empty (0 bytes)."),
        (lambda path: path.symlink_to("nowhere"), "clip.wav does not exist."),
    ],
    ids=["missing", "folder", "empty", "dangling"],
)
def test_paths_that_lead_nowhere(tmp_path, make, message):
    make(tmp_path / "clip.wav")
    with pytest.raises(AudioError) as caught:
        read_audio(tmp_path / "clip.wav")
    assert str(caught.value) == message


def test_permission(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(AudioError, match=r"^clip\.wav cannot be read: permission denied\.$"):
        read_audio(tmp_path / "clip.wav")


@pytest.mark.parametrize("path", ["a\0b.wav", "x" * 5000])
def test_paths_that_cannot_be(path):
    with pytest.raises(AudioError, match="cannot be opened"):
        read_audio(path)


@pytest.mark.parametrize("source", [None, 7, ["a.wav"], np.zeros(10)])
def test_sources_of_a_wrong_type(source):
    with pytest.raises(RequestError, match="must be a path, bytes or a binary stream, not "):
        read_audio(source)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, io.BytesIO, sounds.Pipe])
def test_bytes_and_streams(kind):
    assert read_audio(kind(WAV)).duration_s == 0.5


def test_empty_streams():
    for source in (b"", io.BytesIO(), sounds.Pipe(b"")):
        with pytest.raises(AudioError, match=r"holds no audio: it is empty \(0 bytes\)"):
            read_audio(source)


def test_a_stream_is_read_from_where_it_stands_and_stays_open():
    stream = io.BytesIO(b"prefix" + WAV)
    stream.seek(6)
    assert read_audio(stream).duration_s == 0.5
    assert not stream.closed


def test_a_text_stream_is_a_wrong_request():
    with pytest.raises(RequestError, match="opened in binary mode"):
        read_audio(io.StringIO("text"))


def test_standard_input_has_a_name():
    with pytest.raises(AudioError, match=r"^<stdin> is not a recording"):
        read_audio(sounds.Pipe(b"rubbish"))


def test_a_stream_that_fails_half_way():
    class Failing(io.BytesIO):
        def read(self, size=-1):
            if self.tell() > 1000:
                raise OSError(5, "Input/output error")
            return super().read(min(size, 500) if size >= 0 else 500)

    with pytest.raises(AudioError, match=r"^<stream> could not be read: .*Input/output error"):
        read_audio(Failing(WAV))

    class FailingPipe(sounds.Pipe):
        def readinto(self, buffer):
            raise OSError(5, "Input/output error")

    with pytest.raises(AudioError, match=r"^<stdin> cannot be read: Input/output error\.$"):
        read_audio(FailingPipe(WAV))


def test_a_named_pipe(tmp_path):
    path = tmp_path / "fifo.m4a"
    os.mkfifo(path)
    data = sounds.encode("ipod", "aac")
    writer = threading.Thread(target=path.write_bytes, args=(data,))
    writer.start()
    audio = read_audio(path)
    writer.join()
    assert audio.duration_s == pytest.approx(2.0, abs=0.1)


def test_nothing_reaches_the_terminal_and_importing_changes_nothing(tmp_path):
    (tmp_path / "hole.mp3").write_bytes(sounds.damaged(sounds.encode("mp3", "libmp3lame")))
    (tmp_path / "rubbish").write_bytes(b"ID3" + bytes(5000))
    code = (
        "import sys, stapes.audio\n"
        "assert 'av' not in sys.modules\n"
        "from stapes.errors import AudioError\n"
        "assert stapes.audio.read_audio(sys.argv[1]).warnings\n"
        "try: stapes.audio.read_audio(sys.argv[2])\n"
        "except AudioError: pass\n"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, tmp_path / "hole.mp3", tmp_path / "rubbish"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_no_room_for_the_copy_of_a_pipe(monkeypatch):
    def copy(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", copy)
    with pytest.raises(CapacityError, match=r"<stdin> cannot seek, and .* has no room for a copy"):
        read_audio(sounds.Pipe(WAV))
