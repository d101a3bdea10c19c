"""The converted file: packed matrices, arrays and texts in one safetensors container.

Matrices lie in it as the core reads them, so that a mapped file is used in place. They come first,
from a multiple of 64 bytes on; each takes a multiple of 32 bytes, so all of them stay aligned. The
container's `__metadata__` holds texts: "format" and "version" of this layout, "matrices" (a JSON
object: key -> [format, outputs, inputs]), and whatever else the writer wants to keep.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from stapes import _native
from stapes.errors import CheckpointError, TensorFileError
from stapes.options import WEIGHT_FORMATS
from stapes.tensors import TensorStore, check_tensors, open_safetensors
from stapes.weights.atomic import replacing
from stapes.weights.matrix import PackedMatrix
from stapes.weights.reader import F32, Arrange, key_of, names_of

FORMAT = "stapes"
VERSION = "1"
ALIGNMENT = 64  # of the data in the file, a cache line
_RESERVED = ("format", "version", "matrices")

# What arrays may hold, in a safetensors header and in NumPy.
_DTYPES = {"I64": "<i8", "I32": "<i4", "F32": "<f4", "U8": "|u1"}
_NAMES = {np.dtype(numpy): name for name, numpy in _DTYPES.items()}


@dataclass(frozen=True, eq=False)
class Contents:
    """What a converted file holds.

    Attributes:
        matrices: packed ones, by key.
        vectors: f32, by key.
        arrays: further ones, one-dimensional, under names that are no keys.
        texts: by names other than those of the layout.
    """

    matrices: Mapping[str, PackedMatrix]
    vectors: Mapping[str, F32]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


def write_packed(path: Path, contents: Contents) -> None:
    """Write a file, whole or not at all; one that is there is replaced at the very end.

    Raises:
        CapacityError: the disk has no room. RequestError: the place cannot be written to.
    """
    arrays = _in_order(contents)
    header = _header(contents, arrays)
    with replacing(path, len(header) + sum(a.nbytes for a in arrays.values())) as file:
        file.write(header)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data.cast("B"))


def _in_order(contents: Contents) -> dict[str, NDArray[Any]]:
    """Matrices, then the rest with the largest words first: so all lie aligned."""
    rest = {**contents.vectors, **contents.arrays}
    ordered = sorted(rest, key=lambda name: -rest[name].itemsize)
    matrices = {key: matrix.data for key, matrix in contents.matrices.items()}
    return matrices | {name: rest[name] for name in ordered}


def _header(contents: Contents, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The length field and the JSON, padded with spaces."""
    table = {k: [m.format, m.out_features, m.in_features] for k, m in contents.matrices.items()}
    own = {"format": FORMAT, "version": VERSION, "matrices": json.dumps(table)}
    fields: dict[str, Any] = {"__metadata__": {**contents.texts, **own}}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        dtype, shape = _NAMES[array.dtype], list(array.shape)
        fields[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(fields, ensure_ascii=False).encode("utf-8")
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


class PackedFile:
    """An open converted file.

    Raises:
        TensorFileError: the table of matrices does not fit the data, or another version wrote it.
    """

    def __init__(self, path: Path, store: TensorStore) -> None:
        self.path = path
        self._store = store
        metadata = store.metadata
        if metadata["format"] != FORMAT or metadata.get("version") != VERSION:
            self._refuse(
                f"has version {metadata.get('version')!r} of the converted layout, but this stapes "
                f"reads {VERSION!r}: convert the original once more"
            )
        self.texts = {name: text for name, text in metadata.items() if name not in _RESERVED}
        self._matrices = dict(self._read_table(metadata.get("matrices", "")))

    def _read_table(self, text: str) -> Iterator[tuple[str, PackedMatrix]]:
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            self._refuse(f"has a table of matrices that is not valid JSON: {error}")
        if not isinstance(table, dict):
            self._refuse("has a table of matrices that is no object")
        for key, entry in table.items():
            if not _is_entry(entry) or key not in self._store:
                self._refuse(f"has a matrix {key!r} that its table describes as {entry!r}")
            yield key, self._matrix(key, *entry)

    def _matrix(self, key: str, format: str, out_features: int, in_features: int) -> PackedMatrix:
        data, name = self.array(key), f"{format} matrix {key} [{out_features}, {in_features}]"
        try:
            size = _native.packed_bytes(format, out_features, in_features)
        except ValueError as error:
            raise TensorFileError(f"{self.path}: {name} cannot be: {error}.") from error
        if data.dtype != np.uint8 or data.size != size:
            self._refuse(f"holds {data.nbytes} bytes for {name}, which takes {size}")
        return PackedMatrix(format, out_features, in_features, data)

    @property
    def matrices(self) -> Mapping[str, PackedMatrix]:
        """All matrices by key, views of the mapped file."""
        return self._matrices

    def names(self) -> tuple[str, ...]:
        """Everything that the file holds: keys of matrices, of vectors, names of arrays."""
        return self._store.names()

    def array(self, name: str) -> NDArray[Any]:
        """An array, a read-only view of the mapped file; TensorFileError unless it is one."""
        if name not in self._store:
            self._refuse(f"lacks {name!r}")
        tensor = self._store[name]
        if tensor.dtype not in _DTYPES or len(tensor.shape) != 1:
            self._refuse(f"holds {name!r} as {tensor.dtype} of shape {list(tensor.shape)}")
        array = np.frombuffer(tensor.data, _DTYPES[tensor.dtype])
        if not array.flags.aligned:
            self._refuse(f"holds {name!r} in a place that is not aligned")
        return array

    def _refuse(self, what: str) -> NoReturn:
        raise TensorFileError(f"{self.path} {what}.")

    def close(self) -> None:
        """Give the mapping back as soon as the last view is gone."""
        self._store.close()


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 3
        and entry[0] in WEIGHT_FORMATS
        and all(type(size) is int and 0 < size < 2**31 for size in entry[1:])
    )


class PackedReader:
    """Answers a model's load code from a converted file, without a copy.

    Args:
        file: the open file.
        expected: names and shapes of the checkpoint's tensors that the model needs.
        beside: names of arrays that are no weights.

    Raises:
        CheckpointError: entries are missing, unexpected or mis-shaped; all of them are listed.
    """

    def __init__(
        self,
        file: PackedFile,
        expected: Mapping[str, tuple[int, ...]],
        beside: frozenset[str] = frozenset(),
    ) -> None:
        self._file = file
        keys = [key for key in file.names() if key not in beside]
        needed = {key: _joined_shape(key, expected) for key in keys}
        given = {name for key in keys for name in names_of(key)}
        lacking = {name: shape for name, shape in expected.items() if name not in given}
        check_tensors(
            {key: _Shape(self._shape(key)) for key in keys},
            {key: shape for key, shape in needed.items() if shape} | lacking,
        )

    def _shape(self, key: str) -> tuple[int, ...]:
        matrix = self._file.matrices.get(key)
        if matrix is None:
            return self._file.array(key).shape
        return matrix.out_features, matrix.in_features

    def vector(self, *names: str) -> F32:
        """See `WeightReader`; CheckpointError unless all values are finite."""
        values = self._file.array(key_of(names))
        if values.dtype != np.float32 or not np.isfinite(values).all():
            raise CheckpointError(
                f"{self._file.path}: {key_of(names)} holds a value that is not finite."
            )
        return values

    def matrix(
        self, *names: str, arrange: Arrange | None = None, exact: bool = False
    ) -> PackedMatrix:
        """See `WeightReader`; what is stored was arranged and made exact before."""
        key = key_of(names)
        if key not in self._file.matrices:
            raise CheckpointError(f"{self._file.path} has no matrix {key!r}.")
        return self._file.matrices[key]


@dataclass(frozen=True)
class _Shape:
    shape: tuple[int, ...]


def _joined_shape(key: str, expected: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """[outputs] or [outputs, inputs] of tensors that were read as one; () unless all are known."""
    shapes = [expected.get(name, ()) for name in names_of(key)]
    if not all(shapes):
        return ()
    out = sum(shape[0] for shape in shapes)
    return (out,) if len(shapes[0]) == 1 else (out, prod(shapes[0][1:]))


def open_packed(path: str | os.PathLike[str]) -> PackedFile | None:
    """Open a converted file; None when it is something else, which its content tells.

    Raises:
        TensorFileError: it is a safetensors file that is damaged, or of another version.
    """
    target = Path(path)
    store = open_safetensors(target)
    if store.metadata.get("format") != FORMAT:
        store.close()
        return None
    try:
        return PackedFile(target, store)
    except TensorFileError:
        store.close()
        raise
