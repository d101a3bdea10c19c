"""Files of torch.save: what is read, and what is refused before anything of it can run."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from stapes.errors import CheckpointError, TensorFileError
from stapes.tensors.torch_file import TorchFile
from tensors.torch_archive import (
    mapping,
    name,
    number,
    program,
    tensor,
    text,
    write_archive,
    write_tensors,
)

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def read(path: Path) -> TorchFile:
    with TorchFile(path) as file:
        for key in file:
            file[key].to_f32()
        return file


def test_tensors_of_every_float_type(tmp_path: Path):
    halves = VALUES.astype(np.float16)
    words = (VALUES.view(np.uint32) >> 16).astype(np.uint16)
    tensors = {"a": VALUES, "h": halves, "b": words, "d": VALUES.astype(np.float64)}
    with TorchFile(write_tensors(tmp_path / "x.pt", tensors)) as file:
        assert list(file) == ["a", "h", "b", "d"]
        assert len(file) == 4
        assert "a" in file
        assert {key: file[key].raw().dtype.name for key in file} == {
            "a": "float32",
            "h": "float16",
            "b": "uint16",
            "d": "float32",
        }
        for key in file:
            assert file[key].shape == (2, 3)
            assert np.array_equal(file[key].to_f32(), VALUES)


def test_names_are_the_keys_on_the_way(tmp_path: Path):
    under = {"dims": mapping({"n_mels": number(80)})}
    with TorchFile(write_tensors(tmp_path / "x.pt", {"w": VALUES}, under)) as file:
        assert list(file) == ["model_state_dict.w"]
        assert file.root["dims"] == {"n_mels": 80}
        assert file.root["model_state_dict"]["w"] is file["model_state_dict.w"]


def test_a_part_of_a_storage(tmp_path: Path):
    part = tensor("0", VALUES[:1], offset=3, numel=6)
    path = write_archive(tmp_path / "x.pt", program(mapping({"a": part})), {"0": VALUES.tobytes()})
    with TorchFile(path) as file:
        assert np.array_equal(file["a"].to_f32(), VALUES[1:])


@pytest.mark.parametrize(
    ("offset", "numel", "stored"), [(4, 6, 24), (0, 5, 20), (0, 6, 20), (0, 2**30, 24)]
)
def test_a_tensor_beyond_its_storage_is_refused(tmp_path: Path, offset, numel, stored):
    whole = tensor("0", VALUES, offset=offset, numel=numel)
    data = VALUES.tobytes()[:stored]
    path = write_archive(tmp_path / "x.pt", program(mapping({"a": whole})), {"0": data})
    with pytest.raises(TensorFileError, match=r"Tensor 'a' of .* does not lie in its entry"):
        read(path)


def test_whole_numbers_are_no_weights(tmp_path: Path):
    path = write_tensors(tmp_path / "x.pt", {"a": np.arange(3)})
    with pytest.raises(CheckpointError, match="'a' has dtype I64"):
        read(path)
    with TorchFile(path) as file, pytest.raises(CheckpointError, match="no tensor 'b'"):
        file["b"]


class Harm:
    """Runs a command when it is unpickled by a reader that permits it."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_command_is_not_run(tmp_path: Path, protocol: int):
    mark = tmp_path / "ran"
    data = pickle.dumps({"a": Harm(f"touch {mark}")}, protocol)
    path = write_archive(tmp_path / "x.pt", data, {})
    with pytest.raises(TensorFileError, match="which is not read"):
        TorchFile(path)
    pickle.loads(data)
    assert mark.exists()  # it would have run


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (name("builtins", "eval") + b"(" + text("1") + b"tR", "an object of builtins.eval"),
        (name("torch", "load"), "an object of torch.load"),
        (name("collections", "deque"), "an object of collections.deque"),
        (name("torch._utils", "_rebuild_sparse_tensor"), "_rebuild_sparse_tensor"),
        (b"(ios\nsystem\n", "the pickle instruction INST"),
        (number(1) + b"r\xff\xff\xff\x7f", "the memo index 2147483647"),
        (name("torch", "FloatStorage") + b")R", "not callable"),
        (name("torch._utils", "_rebuild_tensor_v2") + b")R", "missing"),
        (text("module") + b"Q", "damaged"),
    ],
)
def test_other_programs_are_refused(tmp_path: Path, value: bytes, reason: str):
    with pytest.raises(TensorFileError, match=reason):
        TorchFile(write_archive(tmp_path / "x.pt", program(value), {}))


def test_damage_has_its_sentence(tmp_path: Path):
    whole = write_tensors(tmp_path / "whole.pt", {"a": VALUES})
    packed = write_archive(
        tmp_path / "packed.pt", program(b"}"), {}, compression=zipfile.ZIP_DEFLATED
    )
    old = tmp_path / "old.pt"
    old.write_bytes(pickle.dumps(1, 2))
    cut = tmp_path / "cut.pt"
    cut.write_bytes(whole.read_bytes()[:-30])
    empty = tmp_path / "empty.pt"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("archive/other", "")
    short = write_archive(tmp_path / "short.pt", program(mapping({}))[:-3], {})
    for path, reason in (
        (packed, "holds archive/data.pkl compressed"),
        (old, "is not a zip archive, as torch.save has written since PyTorch 1.6"),
        (cut, "is a damaged zip archive"),
        (empty, "holds 0 pickles named data.pkl"),
        (short, "is damaged"),
        (tmp_path / "none.pt", "cannot be read: No such file"),
        (tmp_path, "cannot be read: Is a directory"),
    ):
        with pytest.raises(TensorFileError, match=reason):
            TorchFile(path)


def test_every_changed_byte_is_read_or_refused(tmp_path: Path):
    data = bytearray(write_tensors(tmp_path / "x.pt", {"a": VALUES}).read_bytes())
    path = tmp_path / "y.pt"
    refused = 0
    for i in range(len(data)):
        changed = data.copy()
        changed[i] ^= 1 << i % 8
        path.write_bytes(changed)
        try:
            read(path)
        except (TensorFileError, CheckpointError):
            refused += 1
    assert refused > len(data) // 3
