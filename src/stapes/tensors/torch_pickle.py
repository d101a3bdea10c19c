"""The pickle inside a file of torch.save, read without PyTorch and without running its code.

A pickle is a program. This one may build plain containers, numbers and text, and name tensors: its
opcodes are compared with a list before anything runs, and the only callables that it can reach are
the stand-ins below. Everything else is a `TensorFileError`.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from stapes.errors import TensorFileError

#: Storage classes: the dtype as safetensors spells it, and bytes of a value.
_STORAGES = {
    "FloatStorage": ("F32", 4),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
    "DoubleStorage": ("F64", 8),
    "LongStorage": ("I64", 8),
    "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2),
    "CharStorage": ("I8", 1),
    "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
}

_OPCODES = frozenset(
    [
        "PROTO",
        "STOP",
        "MARK",
        "POP",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
        "SHORT_BINSTRING",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "EMPTY_LIST",
        "APPEND",
        "APPENDS",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "EMPTY_DICT",
        "SETITEM",
        "SETITEMS",
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
        "BUILD",
        "BINPERSID",
        "BINGET",
        "LONG_BINGET",
        "BINPUT",
        "LONG_BINPUT",
        "MEMOIZE",
        "FRAME",
    ]
)


@dataclass(frozen=True)
class StorageRef:
    """A run of values in the file: `key` names the entry data/<key>."""

    key: str
    dtype: str
    itemsize: int
    numel: int


@dataclass(frozen=True)
class TensorRef:
    """A tensor as the pickle describes it; offset and strides count values."""

    storage: StorageRef
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def read_torch_pickle(data: bytes, where: str) -> Any:
    """The object: containers, numbers and text as they are, `TensorRef` for each tensor.

    Raises:
        TensorFileError: damaged, or it holds anything but what is listed above.
    """
    try:
        _check_opcodes(data)
        return _Unpickler(data).load()
    except _NotAllowedError as error:
        raise TensorFileError(f"{where} holds {error}, which is not read.") from None
    except (MemoryError, RecursionError):
        raise TensorFileError(f"{where} is nested too deeply or too large.") from None
    except Exception as error:  # a damaged pickle may fail in any way
        raise TensorFileError(f"{where} is damaged: {error}.") from error


class _NotAllowedError(Exception):
    """What the pickle asked for, as a noun."""


def _check_opcodes(data: bytes) -> None:
    """Nothing but the listed opcodes, and no memo index that would make the reader reserve much."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _OPCODES:
            raise _NotAllowedError(f"the pickle instruction {opcode.name}")
        if opcode.name == "LONG_BINPUT" and cast(int, argument) > len(data):
            raise _NotAllowedError(f"the memo index {argument}")


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in _STORAGES:
            return _Storage(*_STORAGES[name])
        if module == "torch._utils" and name in _REBUILDERS:
            return _REBUILDERS[name]
        raise _NotAllowedError(f"an object of {module}.{name}")

    def persistent_load(self, pid: Any) -> StorageRef:
        """("storage", class, key, device, values) -> a reference."""
        kind, storage, key, _, numel = pid
        if kind != "storage" or not isinstance(storage, _Storage) or not isinstance(key, str):
            raise ValueError("a storage is not described as one")
        return StorageRef(key, storage.dtype, storage.itemsize, _count(numel))


@dataclass(frozen=True)
class _Storage:
    """Stands for a storage class; cannot be called."""

    dtype: str
    itemsize: int


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> TensorRef:
    """Stands for torch._utils._rebuild_tensor_v2; gradients and hooks are left out."""
    if not isinstance(storage, StorageRef):
        raise ValueError("a tensor has no storage")
    sizes, steps = tuple(map(_count, shape)), tuple(map(_count, stride))
    if len(sizes) != len(steps):
        raise ValueError(f"a tensor has {len(sizes)} axes and {len(steps)} strides")
    return TensorRef(storage, _count(offset), sizes, steps)


def _parameter(data: Any, *_: Any) -> TensorRef:
    """Stands for torch._utils._rebuild_parameter."""
    if not isinstance(data, TensorRef):
        raise ValueError("a parameter has no tensor")
    return data


_REBUILDERS: dict[str, Callable[..., TensorRef]] = {
    "_rebuild_tensor_v2": _tensor,
    "_rebuild_parameter": _parameter,
}


def _count(value: Any) -> int:
    """A whole number from 0 to 2^62."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise ValueError(f"{value!r} is no size")
    return value
