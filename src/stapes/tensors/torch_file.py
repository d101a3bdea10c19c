"""Files of torch.save: a zip archive with one pickle and the tensors' bytes, not compressed.

Tensors are read when asked for, so that half of a file of 1.5 GB can be left on the disk.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stapes.errors import CheckpointError, TensorFileError
from stapes.tensors.tensor import widen
from stapes.tensors.torch_pickle import TensorRef, read_torch_pickle

_PICKLE = "data.pkl"
_MOST_PICKLE_BYTES = 64 * 2**20  # names and shapes; 40,000 tensors take 4 MB
_ZIP_MAGIC = b"PK\x03\x04"

_FLOATS: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


class TorchTensor:
    """A named tensor of a file.

    Attributes:
        name: its keys in the file, joined by dots.
        shape: () for a scalar.
    """

    def __init__(self, file: TorchFile, name: str, ref: TensorRef) -> None:
        self._file, self._ref = file, ref
        self.name, self.shape = name, ref.shape

    def raw(self) -> NDArray[Any]:
        """The stored words in the tensor's shape: float32, float16, or uint16 for bf16.

        float64 comes as float32. Raises CheckpointError for other types, TensorFileError when the
        bytes are not there.
        """
        dtype = _FLOATS.get(self._ref.storage.dtype)
        if dtype is None:
            raise CheckpointError(
                f"Tensor {self.name!r} has dtype {self._ref.storage.dtype}, which cannot be read as"
                f" weights; {', '.join(_FLOATS)} can."
            )
        if 0 in self.shape:
            return np.zeros(self.shape, np.float32)
        words = np.frombuffer(self._file.storage(self.name, self._ref), dtype)[self._ref.offset :]
        strides = tuple(step * dtype.itemsize for step in self._ref.stride)
        shaped = np.lib.stride_tricks.as_strided(words, self.shape, strides, writeable=False)
        shaped = np.ascontiguousarray(shaped).reshape(self.shape)
        return shaped.astype(np.float32) if dtype.itemsize == 8 else shaped

    def to_f32(self) -> NDArray[np.float32]:
        """The values as float32, shaped."""
        return widen(self.raw())


class TorchFile:
    """The tensors of a file by name, and `root`, the object that was saved.

    In `root` tensors stand as `TorchTensor`. `in`, `[name]` and iteration are as of a mapping; the
    names of nested dictionaries' tensors are joined by dots. A `with` block closes the file.

    Raises:
        TensorFileError: missing, damaged, not of this format, or holding other objects than
            containers, numbers, text and tensors.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._archive = _open_archive(self.path)
        self._tensors: dict[str, TorchTensor] = {}
        try:
            self._entries, self._prefix, pickled = _checked_entries(self.path, self._archive)
            self.root = self._named(read_torch_pickle(pickled, str(self.path)), ())
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, name: str) -> TorchTensor:
        """Raises CheckpointError when there is no such tensor."""
        if name not in self._tensors:
            raise CheckpointError(f"There is no tensor {name!r} in {self.path}.")
        return self._tensors[name]

    def release(self, name: str) -> None:
        """Nothing to do: no bytes are kept."""

    def storage(self, name: str, ref: TensorRef) -> bytes:
        """The bytes of the run that a tensor lies in; TensorFileError unless it lies in them."""
        steps = zip(ref.shape, ref.stride, strict=True)
        last = ref.offset + sum((size - 1) * step for size, step in steps)
        needed = ref.storage.numel * ref.storage.itemsize
        entry = f"{self._prefix}data/{ref.storage.key}"
        if self._entries.get(entry) != needed or last >= ref.storage.numel:
            raise TensorFileError(
                f"Tensor {name!r} of {self.path} does not lie in its entry {entry}, which has"
                f" {self._entries.get(entry, 0)} bytes and should have {needed}."
            )
        return _entry(self.path, self._archive, entry)

    def close(self) -> None:
        """Gives the file back; may be called twice."""
        self._archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _named(self, value: Any, keys: tuple[str, ...]) -> Any:
        """The object with its tensors named and noted."""
        if isinstance(value, TensorRef):
            name = ".".join(keys)
            return self._tensors.setdefault(name, TorchTensor(self, name, value))
        if isinstance(value, Mapping):
            return {key: self._named(item, (*keys, str(key))) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._named(item, (*keys, str(i))) for i, item in enumerate(value)]
        return value


def _open_archive(path: Path) -> zipfile.ZipFile:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_ZIP_MAGIC))
        if magic != _ZIP_MAGIC:
            raise TensorFileError(
                f"{path} is not a zip archive, as torch.save has written since PyTorch 1.6."
            )
        return zipfile.ZipFile(path)
    except OSError as error:
        raise TensorFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise TensorFileError(f"{path} is a damaged zip archive: {error}.") from error


def _entry(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except (OSError, zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError) as error:
        raise TensorFileError(f"{path} is damaged at its entry {name}: {error}.") from error


def _checked_entries(path: Path, archive: zipfile.ZipFile) -> tuple[dict[str, int], str, bytes]:
    """Sizes of all entries, the name of the archive's folder with its slash, and the pickle."""
    entries = {info.filename: info.file_size for info in archive.infolist()}
    packed = [i.filename for i in archive.infolist() if i.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise TensorFileError(f"{path} holds {packed[0]} compressed, which torch.save never does.")
    pickles = [name for name in entries if name.rpartition("/")[2] == _PICKLE]
    if len(pickles) != 1:
        raise TensorFileError(f"{path} holds {len(pickles)} pickles named {_PICKLE}, not one.")
    prefix = pickles[0].removesuffix(_PICKLE)
    if entries[pickles[0]] > _MOST_PICKLE_BYTES:
        raise TensorFileError(f"{path} describes its tensors in {entries[pickles[0]]} bytes.")
    order = prefix + "byteorder"
    if order in entries and _entry(path, archive, order).strip() != b"little":
        raise TensorFileError(f"{path} was written with another byte order than little-endian.")
    return entries, prefix, _entry(path, archive, pickles[0])
