"""GGUF files put together byte by byte, so that they can be wrong in every way."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

# Numbers of the format, written down here once more.
U8, I8, U16, I16, U32, I32, F32_VALUE, BOOL, TEXT, ARRAY, U64, I64, F64 = range(13)
F32, F16, Q4_0, Q8_0, Q8_K, BF16 = 0, 1, 2, 8, 15, 30


@dataclass(frozen=True)
class Blob:
    """A tensor: `dims` in the file's order, fastest first; `offset` overrules where it lies."""

    name: str
    dims: tuple[int, ...]
    type: int
    data: bytes
    offset: int | None = None


def f32_blob(name: str, *dims: int, first: float = 0) -> Blob:
    values = np.arange(int(np.prod(dims)), dtype="<f4") + np.float32(first)
    return Blob(name, dims, F32, values.tobytes())


def text(value: str | bytes) -> bytes:
    data = value.encode("utf-8") if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def pair(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def u32(key: str, value: int) -> bytes:
    return pair(key, U32, struct.pack("<I", value))


def array(key: str, kind: int, count: int, payload: bytes) -> bytes:
    return pair(key, ARRAY, struct.pack("<IQ", kind, count) + payload)


def gguf_bytes(
    tensors: Sequence[Blob] = (),
    pairs: Iterable[bytes] = (),
    *,
    alignment: int = 32,
    magic: bytes = b"GGUF",
    version: bytes = b"\3\0\0\0",
    n_tensors: int | None = None,
    n_pairs: int | None = None,
    padded: bool = True,
) -> bytes:
    """A file. `alignment` is how the bytes lie; the key that says so is among `pairs`, or not."""
    infos, data = b"", b""
    for tensor in tensors:
        data += bytes(-len(data) % alignment)
        offset = len(data) if tensor.offset is None else tensor.offset
        infos += text(tensor.name) + struct.pack("<I", len(tensor.dims))
        infos += b"".join(struct.pack("<Q", size) for size in tensor.dims)
        infos += struct.pack("<IQ", tensor.type, offset)
        data += tensor.data
    pairs = list(pairs)
    counts = (
        len(tensors) if n_tensors is None else n_tensors,
        len(pairs) if n_pairs is None else n_pairs,
    )
    header = magic + version + struct.pack("<QQ", *counts) + b"".join(pairs) + infos
    if padded:
        data += bytes(-len(data) % alignment)
    return header + bytes(-len(header) % alignment) * bool(tensors) + data
