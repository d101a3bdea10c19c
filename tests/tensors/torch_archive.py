"""Writes files in the format of torch.save, opcode by opcode, without PyTorch."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

_STORAGES = {"float32": "FloatStorage", "float16": "HalfStorage", "float64": "DoubleStorage"}
_STORAGES |= {"uint16": "BFloat16Storage", "int64": "LongStorage"}


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def tensor(key: str, array: Array, *, offset: int = 0, numel: int | None = None) -> bytes:
    """A contiguous tensor in the storage `key`."""
    strides = tuple(step // array.itemsize for step in array.strides)
    storage = (
        b"("
        + text("storage")
        + name("torch", _STORAGES[array.dtype.name])
        + text(key)
        + text("cpu")
        + number(array.size if numel is None else numel)
        + b"tQ"
    )
    hooks = name("collections", "OrderedDict") + b")R"
    arguments = storage + number(offset) + numbers(array.shape) + numbers(strides) + b"\x89" + hooks
    return name("torch._utils", "_rebuild_tensor_v2") + b"(" + arguments + b"tR"


def mapping(items: dict[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def program(value: bytes) -> bytes:
    return b"\x80\x02" + value + b"."


def write_archive(
    path: Path, pickle: bytes, storages: dict[str, bytes], *, compression: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", "little")
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key}", data)
    return path


def write_tensors(path: Path, tensors: dict[str, Array], under: dict[str, bytes] | None = None):
    """The tensors as a mapping; with `under`, as its entry "model_state_dict"."""
    keys = {name: str(i) for i, name in enumerate(tensors)}
    state = mapping({name: tensor(keys[name], array) for name, array in tensors.items()})
    root = state if under is None else mapping({**under, "model_state_dict": state})
    storages = {keys[name]: array.tobytes() for name, array in tensors.items()}
    return write_archive(path, program(root), storages)
