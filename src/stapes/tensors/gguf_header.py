"""The header of a GGUF file, read with distrust.

The file: magic, version, two counts; that many metadata pairs; that many tensor descriptions;
then the tensors' bytes, each padded to the alignment. Our own parser, because the gguf package's
reader takes a file at its word: what lies beyond the end or wraps around comes back as short or
shifted arrays. The tests use that package as the oracle.

Sources: ggml-org/ggml's docs/gguf.md; limits and layout rules as in its gguf.cpp.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from stapes.errors import CheckpointError, TensorFileError
from stapes.tensors.gguf_cursor import U32, Cursor, Value
from stapes.tensors.gguf_types import GgmlType, ggml_type, is_readable
from stapes.tensors.header import MAX_ELEMENTS, Entry

MAGIC = b"GGUF"
OLDER_MAGICS = (b"lmgg", b"GGML", b"ggml", b"tjgg", b"ggjt", b"fmgg", b"ggmf", b"algg", b"ggla")
VERSION = 3  # the only one in which this family's files were ever written
FIXED_BYTES = 24  # magic, version, both counts
MAX_DIMS = 4  # of a ggml tensor
LONGEST_NAME = 64  # bytes of a tensor's name
LONGEST_KEY = 65535  # bytes of a metadata key
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 16  # a large memory page; what is above it was never meant
SMALLEST_PAIR = 13  # key length, empty key, type, one byte
SMALLEST_TENSOR = 24  # name length, empty name, rank 0, type, offset


@dataclass(frozen=True)
class GgufHeader:
    """Entries in the order of their bytes (dtype: ggml's name of the type), and the metadata."""

    entries: Mapping[str, Entry]
    metadata: Mapping[str, Value]


@dataclass(frozen=True)
class _Info:
    """A tensor's description; `shape` is row-major, `offset` counts from the data's start."""

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset: int


def read_gguf_header(path: Path, memory: mmap.mmap) -> GgufHeader:
    """Reads and checks the header of a mapped file.

    Raises TensorFileError for everything that is not as the format demands, and CheckpointError
    with the full list of tensors whose type cannot be read.
    """
    _check_start(path, memory)
    cursor = Cursor(path, memory, 8)
    n_tensors = cursor.count("tensors", SMALLEST_TENSOR)
    n_pairs = cursor.count("metadata pairs", SMALLEST_PAIR)
    metadata = _read_metadata(cursor, n_pairs)
    infos = _read_infos(cursor, n_tensors)
    alignment = _alignment(path, metadata)
    data_start = _aligned(cursor.position, alignment)
    types = _types(path, infos)
    entries = [(i.name, _entry(path, i, types[i.name], data_start)) for i in infos]
    entries.sort(key=lambda item: (item[1].begin, item[1].end))
    _check_layout(path, entries, data_start, alignment, len(memory))
    return GgufHeader(dict(entries), MappingProxyType(metadata))


def _check_start(path: Path, memory: mmap.mmap) -> None:
    magic = memory[:4]
    if magic in OLDER_MAGICS:
        raise TensorFileError(
            f"{path} starts with {magic!r}: a format older than GGUF, which has to be converted."
        )
    if magic != MAGIC:
        raise TensorFileError(f"{path} is no GGUF file: it starts with {magic!r}, not {MAGIC!r}.")
    if len(memory) < FIXED_BYTES:
        raise TensorFileError(
            f"{path} is truncated: it has {len(memory)} of the {FIXED_BYTES} bytes that every "
            "GGUF file starts with."
        )
    version = U32.unpack_from(memory, 4)[0]
    if version & 0xFFFF == 0 and version:
        swapped = int.from_bytes(memory[4:8], "big")
        raise TensorFileError(
            f"{path} is a big-endian GGUF file (version {swapped} with its bytes swapped); only "
            "little-endian files can be read."
        )
    if version != VERSION:
        raise TensorFileError(
            f"{path} is GGUF version {version}; only version {VERSION} can be read."
        )


def _read_metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(count):
        key = cursor.text("a metadata key", LONGEST_KEY)
        if key in metadata:
            cursor.refuse(f"the metadata key {key!r} appears twice")
        metadata[key] = cursor.value(f"metadata {key!r}")
    return metadata


def _read_infos(cursor: Cursor, count: int) -> list[_Info]:
    infos: dict[str, _Info] = {}
    for _ in range(count):
        name = cursor.text("a tensor's name", LONGEST_NAME)
        if name in infos:
            cursor.refuse(f"tensor {name!r} appears twice")
        rank = cursor.u32(f"the rank of {name!r}")
        if rank > MAX_DIMS:
            cursor.refuse(f"tensor {name!r} has {rank} dimensions, more than {MAX_DIMS}")
        dims = [cursor.u64(f"the shape of {name!r}") for _ in range(rank)]
        type_number = cursor.u32(f"the type of {name!r}")
        offset = cursor.u64(f"the offset of {name!r}")
        infos[name] = _Info(name, tuple(reversed(dims)), type_number, offset)
    return list(infos.values())


def _alignment(path: Path, metadata: Mapping[str, Value]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    usable = type(value) is int and 0 < value <= MAX_ALIGNMENT and value & (value - 1) == 0
    if not usable:
        raise TensorFileError(
            f"{path}: general.alignment is {value!r}, but must be a power of two up to "
            f"{MAX_ALIGNMENT}."
        )
    assert isinstance(value, int)
    return value


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _types(path: Path, infos: Iterable[_Info]) -> dict[str, GgmlType]:
    """The type of every tensor; CheckpointError with all those whose type cannot be read."""
    types: dict[str, GgmlType] = {}
    unreadable: list[str] = []
    for info in infos:
        kind = ggml_type(info.type_number)
        if kind is None or not is_readable(kind):
            shown = kind.name if kind else f"unknown type {info.type_number}"
            unreadable.append(f"{info.name} ({shown})")
        else:
            types[info.name] = kind
    if unreadable:
        raise CheckpointError(
            f"{path} holds {len(unreadable)} tensors of types that cannot be read: "
            f"{', '.join(unreadable)}."
        )
    return types


def _entry(path: Path, info: _Info, kind: GgmlType, data_start: int) -> Entry:
    """Python's integers do not wrap, so the products are exact however absurd the shape."""
    nonzero = 1
    for size in info.shape:
        nonzero *= max(size, 1)
    if nonzero * kind.block_bytes > MAX_ELEMENTS:
        raise TensorFileError(
            f"{path}: tensor {info.name!r}: shape {list(info.shape)} is larger than any memory."
        )
    width = info.shape[-1] if info.shape else 1
    if width % kind.block:
        raise TensorFileError(
            f"{path}: tensor {info.name!r}: rows of {width} values are no whole number of "
            f"{kind.name}'s blocks of {kind.block}."
        )
    size = 0 if 0 in info.shape else nonzero // kind.block * kind.block_bytes
    begin = data_start + info.offset
    return Entry(kind.name, info.shape, begin, begin + size)


def _check_layout(
    path: Path, entries: list[tuple[str, Entry]], data_start: int, alignment: int, file_size: int
) -> None:
    """Tensors lie one behind the other, padded to the alignment, and all of them in the file.

    The padding behind the last one may be absent, but nothing may follow it.
    """
    due = end = data_start
    for name, entry in entries:
        if entry.begin != due:
            what = "overlaps the tensor before it" if entry.begin < due else "leaves a hole"
            raise TensorFileError(
                f"{path}: tensor {name!r} {what}: it begins at byte {entry.begin}, where {due} "
                f"was due with an alignment of {alignment}."
            )
        end = entry.end
        due = _aligned(end, alignment)
    beyond = [name for name, entry in entries if entry.end > file_size]
    if beyond:
        raise TensorFileError(
            f"{path} is truncated: it has {file_size} bytes of {end}, so that {len(beyond)} of "
            f"{len(entries)} tensors are cut off, {beyond[0]!r} first."
        )
    if entries and file_size not in (end, due):
        what = "ends within its padding" if file_size < due else "has bytes that no tensor names"
        raise TensorFileError(
            f"{path} {what}: it has {file_size} bytes, where its last tensor ends at {end} and "
            f"its padding at {due}."
        )
