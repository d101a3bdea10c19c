"""Safetensors files, made by hand so that they can be wrong in every way."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1, "F8_E4M3": 1, "BOOL": 1}


def header_of(tensors: dict[str, tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    return header


def data_size(header: dict[str, Any]) -> int:
    return max((e["data_offsets"][1] for n, e in header.items() if n != "__metadata__"), default=0)


def file_bytes(header: dict[str, Any] | str | bytes, data: bytes, pad_to: int = 0) -> bytes:
    """A file of this header, padded with spaces, and this data."""
    if isinstance(header, dict):
        header = json.dumps(header)
    if isinstance(header, str):
        header = header.encode("utf-8")
    header = header.ljust(pad_to)
    return len(header).to_bytes(8, "little") + header + data


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """write(header, data=None, name=..., pad_to=0): a file; without data, the right many bytes."""

    def write_file(
        header: dict[str, Any] | str | bytes,
        data: bytes | None = None,
        name: str = "model.safetensors",
        pad_to: int = 0,
    ) -> Path:
        if data is None:
            size = data_size(header) if isinstance(header, dict) else 0
            data = np.random.default_rng(len(name)).bytes(size)
        path = tmp_path / name
        path.write_bytes(file_bytes(header, data, pad_to))
        return path

    return write_file


@pytest.fixture
def small_header() -> dict[str, Any]:
    return header_of(
        {"a": ("F32", (2, 3)), "b": ("BF16", (4,)), "c": ("F16", (2, 2)), "d": ("F32", ())}
    )


@pytest.fixture
def shards(tmp_path: Path, write: Callable[..., Path]) -> Callable[..., Path]:
    """shards(files, weight_map=None): writes {file: {tensor: (dtype, shape)}} and the index."""

    def write_shards(
        files: dict[str, dict[str, tuple[str, tuple[int, ...]]]],
        weight_map: dict[str, Any] | None = None,
    ) -> Path:
        for name, tensors in files.items():
            write(header_of(tensors), name=name)
        if weight_map is None:
            weight_map = {tensor: name for name, tensors in files.items() for tensor in tensors}
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        return tmp_path

    return write_shards
