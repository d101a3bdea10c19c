"""Manifests: what they mean, and every way in which they can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from stapes.batch.manifest import read_manifest
from stapes.batch.task import Task
from stapes.errors import RequestError
from stapes.options import TranscribeOptions

DEFAULTS = TranscribeOptions(language="English", context="Ada", batch=2)


def read(folder: Path, *lines: str | bytes) -> list[Task]:
    path = folder / "manifest.jsonl"
    data = [line.encode() if isinstance(line, str) else line for line in lines]
    path.write_bytes(b"\n".join(data))
    return read_manifest(path, DEFAULTS)


def test_an_entry_of_audio_alone(tmp_path):
    path = str(tmp_path / "sub/a.wav")
    assert read(tmp_path, '{"audio": "sub/a.wav"}') == [
        Task("sub/a.wav", "sub/a.wav", path, DEFAULTS)
    ]


def test_paths_do_not_depend_on_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "m.jsonl").write_text('{"audio": "a.wav"}\n{"audio": "/b.wav"}\n')
    monkeypatch.chdir(tmp_path)
    tasks = read_manifest(Path("m.jsonl"), DEFAULTS)
    assert [task.path for task in tasks] == [str(tmp_path / "a.wav"), "/b.wav"]


def test_an_entry_has_options_of_its_own(tmp_path):
    line = (
        '{"audio": "a", "id": "1", "language": "de", "context": "", "max_new_tokens": 7, '
        '"batch": null, "chunk_seconds": 12, "vad": false, "loop_detection": false}'
    )
    [task] = read(tmp_path, line)
    assert task.id == "1"
    assert task.options == TranscribeOptions("German", "", 7, False, 2, 12, False)


def test_empty_lines_line_ends_and_a_byte_order_mark(tmp_path):
    lines = (b'\xef\xbb\xbf{"audio": "a"}\r', b"", b"  ", '{"audio": "größe 🦉"}')
    assert [task.id for task in read(tmp_path, *lines)] == ["a", "größe 🦉"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "this is not JSON"),
        (b'{"audio": "\xff"}', "this is not JSON"),
        ("[" * 100_000, "this is not JSON"),
        ('["a"]', "not a JSON object but list"),
        ("{}", '"audio" is missing'),
        ('{"audio": ""}', "'audio' must be text of at least one character, not ''"),
        ('{"audio": 7}', "'audio' must be text"),
        ('{"audio": "a\\u0000b"}', "'audio' must be text"),
        ('{"audio": "b", "id": 7}', "'id' must be text"),
        ('{"audio": "b", "languge": "en"}', "'languge' is no field of an entry"),
        ('{"audio": "b", "language": "Elvish"}', "'Elvish' is not known"),
        ('{"audio": "b", "language": 7}', "'language' must be text, not 7"),
        ('{"audio": "b", "batch": true}', "'batch' must be a whole number, not True"),
        ('{"audio": "b", "batch": 0}', "batch must be a positive whole number, not 0"),
        ('{"audio": "b", "chunk_seconds": 301}', "between 1 and 300, not 301"),
        ('{"audio": "b", "chunk_seconds": NaN}', "between 1 and 300, not nan"),
        ('{"audio": "b", "vad": "no"}', "'vad' must be true or false, not 'no'"),
        ('{"audio": "a"}', "the id 'a' is that of line 1, too"),
        ('{"audio": "b", "id": "a"}', "the id 'a' is that of line 1, too"),
    ],
)
def test_a_wrong_line_is_told_with_its_number(tmp_path, line, reason):
    with pytest.raises(RequestError) as caught:
        read(tmp_path, '{"audio": "a"}', "", line)
    assert "manifest.jsonl, of which nothing was done: line 3: " in str(caught.value)
    assert reason in str(caught.value)


def test_all_wrong_lines_are_counted(tmp_path):
    with pytest.raises(RequestError, match=r"line 1: .*; line 2: .*; line 5: .*; and 2 more\.$"):
        read(tmp_path, *["{}"] * 7)


def test_nothing_to_do_is_an_error(tmp_path):
    with pytest.raises(RequestError, match="has no entries"):
        read(tmp_path, "")
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        read_manifest(tmp_path / "absent", DEFAULTS)
    with pytest.raises(RequestError, match="cannot be read: Is a directory"):
        read_manifest(tmp_path, DEFAULTS)
