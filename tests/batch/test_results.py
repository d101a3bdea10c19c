"""The file of results: what is in it after any end, and who may write it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from batch.rigged import outcome, task
from stapes.batch import results as module
from stapes.batch.results import open_results
from stapes.batch.task import Outcome
from stapes.errors import CapacityError, RequestError


def failure(name: str) -> Outcome:
    return Outcome.failed(task(name), f"{name} is damaged.", "audio")


def write(path: Path, *outcomes: Outcome) -> None:
    with open_results(path) as results:
        for each in outcomes:
            results.write(each)


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_bytes().split(b"\n") if line]


def test_a_line_for_each_outcome(tmp_path):
    path = tmp_path / "r.jsonl"
    write(path, outcome("a", "größe\u2028🦉"), failure("b"))
    first, second = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(first) == {"id": "a", "audio": "a.wav", "text": "größe\u2028🦉"}
    assert "größe" in first
    error = {"error": "b is damaged.", "kind": "audio"}
    assert json.loads(second) == {"id": "b", "audio": "b.wav", **error}


def test_stray_bytes_of_file_names_come_back(tmp_path):
    path, name = tmp_path / "r.jsonl", os.fsdecode(b"\xff")
    write(path, outcome(name))
    with open_results(path) as results:
        assert results.has(name)


def test_what_is_there_is_known_and_gone_on_with(tmp_path):
    path = tmp_path / "r.jsonl"
    write(path, outcome("a"), failure("b"))
    with open_results(path) as results:
        assert (results.done, results.failed, results.torn) == ({"a"}, {"b": "audio"}, 0)
        results.write(outcome("c"))
        assert [results.has(name) for name in "abcd"] == [True, True, True, False]
    assert ids(path) == ["a", "b", "c"]


def test_cut_anywhere_it_is_whole_again_once_the_rest_is_done(tmp_path):
    path = tmp_path / "r.jsonl"
    outcomes = {name: outcome(name, "größe") for name in "abc"}
    write(path, *outcomes.values())
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with open_results(path) as results:
            assert results.torn == length - whole[:length].rfind(b"\n") - 1
            assert len(results.done) == whole[:length].count(b"\n")
            for name in outcomes.keys() - results.done:
                results.write(outcomes[name])
        assert sorted(ids(path)) == ["a", "b", "c"], length


def test_zeros_of_a_power_cut_are_removed(tmp_path):
    path = tmp_path / "r.jsonl"
    write(path, outcome("a"))
    path.write_bytes(path.read_bytes() + bytes(50))
    with open_results(path) as results:
        assert (results.done, results.torn) == ({"a"}, 50)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"RIFF\0\0\0\0WAVE", 1),
        (b"precious notes\n", 1),
        (b'{"audio": "a"}\n', 1),
        (b'{"id": "a", "audio": "a"}\n{"id": "b", "audio": "b"}\n', 1),
        (b'{"id": "a", "text": ""}\nprecious\n{"id": "b", "text": ""}\n', 2),
        (b'{"id": "a", "text": ""}\n{"id": "b", "te\n{"id": "c", "text": ""}\n', 2),
    ],
)
def test_other_files_are_refused_and_left_alone(tmp_path, content, line):
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=rf"line {line} of .*r\.jsonl is no result"):
        write(path)
    assert path.read_bytes() == content


def test_places_that_cannot_be_written(tmp_path):
    with pytest.raises(RequestError, match="no ordinary file"):
        write(tmp_path)
    with pytest.raises(RequestError, match="No such file"):
        write(tmp_path / "absent" / "r.jsonl")


def test_one_job_at_a_time(tmp_path):
    path = tmp_path / "r.jsonl"
    with open_results(path), pytest.raises(RequestError, match="another job is writing"):
        write(path)
    write(path, outcome("a"))


def test_failed_entries_that_are_forgotten_have_no_line(tmp_path):
    path, link = tmp_path / "r.jsonl", tmp_path / "link"
    link.symlink_to(path)
    write(path, failure("a"), outcome("b"), failure("c"), failure("elsewhere"))
    path.write_bytes(path.read_bytes() + b'{"id": "d')
    with open_results(link) as results:
        results.forget(["a", "b", "c", "d"])
        assert (results.done, results.failed) == ({"b"}, {"elsewhere": "audio"})
        assert ids(path) == ["b", "elsewhere"]
        with pytest.raises(RequestError, match="another job"):
            write(path)
        results.write(outcome("a"))
    assert ids(path) == ["b", "elsewhere", "a"]
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "r.jsonl"]


def test_forgetting_is_done_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    write(path, failure("a"), outcome("b"))
    before = path.read_bytes()
    with open_results(path) as results:

        def fail(*paths: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(module.os, "replace", fail)
        with pytest.raises(CapacityError, match="No space left"):
            results.forget(["a"])
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["r.jsonl"]


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    real = os.pwrite
    with open_results(path) as results:
        results.write(outcome("a"))

        def fill(descriptor: int, data: memoryview, offset: int) -> int:
            if len(data) < 20:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, data[:10], offset)

        monkeypatch.setattr(module.os, "pwrite", fill)
        with pytest.raises(CapacityError, match="No space left"):
            results.write(outcome("b"))
        assert not results.has("b")
        assert ids(path) == ["a"]
        monkeypatch.setattr(module.os, "pwrite", lambda d, data, at: real(d, data[:10], at))
        results.write(outcome("c"))
    assert ids(path) == ["a", "c"]


def test_a_line_is_on_the_disk_before_the_next(tmp_path, monkeypatch):
    path, synced = tmp_path / "r.jsonl", []
    with open_results(path) as results:
        monkeypatch.setattr(module.os, "fsync", lambda descriptor: synced.append(ids(path)))
        results.write(outcome("a"))
        results.write(outcome("b"))
    assert synced == [["a"], ["a", "b"]]
