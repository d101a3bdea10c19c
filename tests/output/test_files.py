"""Names of output files, and writing them whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from stapes.errors import CapacityError, RequestError
from stapes.output.files import (
    check_directory,
    output_paths,
    prepare_directory,
    storage_error,
    write_atomically,
)


def test_names_come_from_the_stems():
    names = ["a.wav", "x/b.tar.gz", "-", "umläut 数.mp3", "none", ".wav"]
    paths = output_paths(names, Path("out"), ".txt")
    assert [path.name for path in paths] == [
        "a.txt", "b.tar.txt", "stdin.txt", "umläut 数.txt", "none.txt", ".wav.txt",
    ]  # fmt: skip
    assert {path.parent for path in paths} == {Path("out")}


@pytest.mark.parametrize("names", [["a.wav", "a.mp3"], ["a.wav", "a.wav"], ["-", "x/stdin.ogg"]])
def test_equal_names_are_refused(names):
    with pytest.raises(RequestError, match="would both be written to"):
        output_paths(names, Path("out"), ".txt")


def test_without_a_folder_files_go_beside_the_recordings():
    paths = output_paths(["a.wav", "x/b.mkv", "/y/c"], None, ".srt")
    assert paths == [Path("a.srt"), Path("x/b.srt"), Path("/y/c.srt")]


def test_one_folder_by_two_names_is_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(RequestError, match="would both be written to"):
        output_paths([str(tmp_path / "a.wav"), str(tmp_path / "link" / "a.mp3")], None, ".srt")


def test_equal_names_in_different_folders_are_different_files():
    assert len(output_paths(["x/a.wav", "y/a.wav"], None, ".srt")) == 2


def test_nothing_is_beside_standard_input():
    with pytest.raises(RequestError, match="no folder of its own"):
        output_paths(["-"], None, ".srt")


def test_the_input_is_recognised_through_a_link(tmp_path):
    (tmp_path / "a.json").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(RequestError, match="overwrite"):
        output_paths([str(tmp_path / "link" / "a.json")], tmp_path, ".json")


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    target = tmp_path / "a.txt"
    write_atomically(target, b"old")
    write_atomically(target, b"new")
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_file_has_the_permissions_of_any_other(tmp_path):
    (tmp_path / "other").touch()
    write_atomically(tmp_path / "a.txt", b"")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
    target = tmp_path / "a.txt"
    write_atomically(target, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CapacityError, match="No space left"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a.txt", b"new")
    assert os.listdir(tmp_path) == []


def test_a_name_that_is_too_long_is_a_request_error(tmp_path):
    with pytest.raises(RequestError, match="File name too long"):
        write_atomically(tmp_path / ("n" * 300), b"")
    assert os.listdir(tmp_path) == []


def test_a_folder_is_created_and_left_empty(tmp_path):
    prepare_directory(tmp_path / "a" / "b")
    assert os.listdir(tmp_path / "a" / "b") == []


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=r"file is there already, and is no folder\.$"):
        prepare_directory(tmp_path / "file")


def test_a_folder_is_checked_and_not_created(tmp_path):
    check_directory(tmp_path)
    assert os.listdir(tmp_path) == []
    with pytest.raises(RequestError, match="No such file"):
        check_directory(tmp_path / "new")
    assert os.listdir(tmp_path) == []


def test_which_failures_mean_that_it_does_not_fit():
    assert isinstance(storage_error(OSError(errno.EDQUOT, "quota"), "a"), CapacityError)
    assert isinstance(storage_error(OSError(errno.EACCES, "denied"), "a"), RequestError)
