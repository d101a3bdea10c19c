"""The header of a safetensors file, read with distrust.

The file: 8 bytes N (unsigned, little-endian), N bytes of JSON, then the tensors' bytes without
gaps. Our own parser, because the safetensors package's NumPy reader gives no views of BF16 and
its errors do not carry the numbers; the tests use that package as the oracle.

Sources: the format description in huggingface/safetensors' README and the limits of its reader.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from stapes.errors import TensorFileError

LENGTH_BYTES = 8  # the length field in front of the JSON
MAX_RANK = 64  # NumPy's limit, far above any weight's
MAX_ELEMENTS = 2**63 - 1  # what a 64-bit index can address

DTYPE_BITS: dict[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}


@dataclass(frozen=True)
class Entry:
    """One tensor of a file; `begin` and `end` are byte offsets from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """Entries in the order of their bytes, and the free-form `__metadata__`."""

    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]


def read_header(path: Path, file: BinaryIO, file_size: int) -> Header:
    """Reads and checks the header of an open file of `file_size` bytes.

    Raises TensorFileError, naming the file, for everything that is not as the format demands.
    """
    fields, data_start = _read_json(path, file, file_size)
    metadata = _check_metadata(path, fields.pop("__metadata__", {}))
    entries = {name: _check_entry(path, name, entry) for name, entry in fields.items()}
    _check_layout(path, entries, file_size - data_start)
    ordered = sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end))
    return Header({name: _shifted(entry, data_start) for name, entry in ordered}, metadata)


def _shifted(entry: Entry, start: int) -> Entry:
    return Entry(entry.dtype, entry.shape, entry.begin + start, entry.end + start)


def _read_json(path: Path, file: BinaryIO, file_size: int) -> tuple[dict[str, Any], int]:
    """The JSON object, and the offset of the first byte behind it."""
    prefix = file.read(LENGTH_BYTES)
    if len(prefix) < LENGTH_BYTES:
        raise TensorFileError(
            f"{path} has {file_size} bytes; a safetensors file starts with {LENGTH_BYTES} bytes "
            "of header length."
        )
    length = int.from_bytes(prefix, "little")
    if length > file_size - LENGTH_BYTES:
        raise TensorFileError(
            f"{path} is truncated or no safetensors file: its header should take {length} bytes, "
            f"but only {file_size - LENGTH_BYTES} follow the length field."
        )
    text = file.read(length)
    if len(text) != length:
        raise TensorFileError(f"{path} ended after {len(text)} of {length} header bytes.")
    return _parse_object(path, text), LENGTH_BYTES + length


def _parse_object(path: Path, text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise TensorFileError(f"{path}: the header does not start with '{{' but {text[:8]!r}.")
    try:
        fields = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=unique_pairs,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        raise TensorFileError(f"{path}: the header is not valid JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise TensorFileError(f"{path}: the header is not a JSON object.")
    return fields


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict; ValueError when a key comes twice or is not valid Unicode."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} appears twice")
        key.encode("utf-8")  # UnicodeEncodeError, a ValueError, for lone surrogates
        result[key] = value
    return result


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _check_metadata(path: Path, metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise TensorFileError(f"{path}: __metadata__ must map text to text.")
    return metadata


def _check_entry(path: Path, name: str, entry: Any) -> Entry:
    """One header entry, with the offsets still relative to the data."""
    where = f"{path}: tensor {name!r}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise TensorFileError(f"{where} must have exactly dtype, shape and data_offsets.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise TensorFileError(f"{where} has the unknown dtype {dtype!r}.")
    if not _are_sizes(shape) or len(shape) > MAX_RANK:
        raise TensorFileError(
            f"{where}: shape must be a list of at most {MAX_RANK} whole numbers, not {shape!r}."
        )
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise TensorFileError(
            f"{where}: data_offsets must be two ascending whole numbers, not {offsets!r}."
        )
    _check_size(where, dtype, shape, offsets[1] - offsets[0])
    return Entry(dtype, tuple(shape), offsets[0], offsets[1])


def _are_sizes(values: Any) -> bool:
    """A list of ints >= 0; bool is no int here."""
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)


def _check_size(where: str, dtype: str, shape: list[int], held: int) -> None:
    """Python's integers do not wrap, so the product is exact however absurd the shape."""
    nonzero, count = 1, 1
    for size in shape:
        nonzero *= max(size, 1)
        count *= size
    bits = DTYPE_BITS[dtype]
    if nonzero * bits // 8 > MAX_ELEMENTS:
        raise TensorFileError(f"{where}: shape {shape} is larger than any memory.")
    if count * bits != held * 8:
        raise TensorFileError(
            f"{where}: {count} values of {bits} bits, which {dtype} of shape {shape} means, "
            f"do not fill the {held} bytes of its data_offsets."
        )


def _check_layout(path: Path, entries: Mapping[str, Entry], data_size: int) -> None:
    """The tensors cover the data exactly: no hole, no overlap, nothing behind them."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            what = "overlaps the tensor before it" if entry.begin < end else "leaves a hole"
            raise TensorFileError(
                f"{path}: tensor {name!r} {what}: it begins at byte {entry.begin} of the data, "
                f"where {end} was due."
            )
        end = entry.end
    if end != data_size:
        what = "is truncated" if end > data_size else "has bytes that no tensor names"
        raise TensorFileError(
            f"{path} {what}: its tensors take {end} bytes, but {data_size} follow the header."
        )
