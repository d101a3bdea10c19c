"""Opens safetensors checkpoints: one file, or shards with an index."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from stapes.errors import TensorFileError
from stapes.tensors.header import read_header
from stapes.tensors.index import check_promises, read_index
from stapes.tensors.store import MappedFile, TensorStore

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def open_safetensors(path: str | os.PathLike[str]) -> TensorStore:
    """Maps a checkpoint and checks all of its headers; no tensor is read yet.

    A folder is read by its `model.safetensors.index.json` (exactly the files that it names),
    without one as `model.safetensors`; a file is read as it is. Raises TensorFileError for
    whatever is missing, damaged or does not fit together.
    """
    target = Path(path)
    if target.is_dir():
        return _open_folder(target)
    if not target.exists():
        raise TensorFileError(f"{target} does not exist.")
    return TensorStore([_map_file(target)])


def _open_folder(folder: Path) -> TensorStore:
    index, single = folder / INDEX_FILE, folder / SINGLE_FILE
    if index.exists():
        return _open_shards(index)
    if single.exists():
        return TensorStore([_map_file(single)])
    raise TensorFileError(f"{folder} holds neither {SINGLE_FILE} nor {INDEX_FILE}.")


def _open_shards(index: Path) -> TensorStore:
    promised = read_index(index)
    files: list[MappedFile] = []
    try:
        for shard in promised:
            files.append(_map_file(index.parent / shard))
        found = {file.path.name: file.header.entries for file in files}
        check_promises(index, promised, found)
    except TensorFileError:
        for file in files:
            file.close()
        raise
    return TensorStore(files)


def _map_file(path: Path) -> MappedFile:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = read_header(path, file, size)
            memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise TensorFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    return MappedFile(path, header, memory)
