"""Every type of ggml, one file each: the values are those of the gguf package, or it is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from stapes.errors import CheckpointError
from stapes.tensors.gguf import open_gguf
from tensors.gguf_bytes import Blob, gguf_bytes

#: Those that nothing is ever stored in: operands of products, and integers.
NOT_WEIGHTS = {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"}
ROWS = 5


def sizes(number: int) -> tuple[str, int, int] | None:
    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        return None
    return (kind.name, *GGML_QUANT_SIZES[kind])


def rows_of(block_bytes: int, blocks: int) -> np.ndarray:
    """Random bytes: values, signs, scales. The first row is zeros, the second ones."""
    stored = np.random.default_rng(block_bytes).integers(
        0, 256, (ROWS, blocks * block_bytes), dtype=np.uint8
    )
    stored[0] = 0
    stored[1] = 0xFF
    return stored


@pytest.mark.parametrize("number", range(40))
def test_values_are_those_of_the_gguf_package(tmp_path: Path, number: int) -> None:
    known = sizes(number)
    name, block, block_bytes = known or (f"unknown type {number}", 1, 4)
    blocks = 3 if block > 1 else 32
    stored = rows_of(block_bytes, blocks)
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes([Blob("t", (blocks * block, ROWS), number, stored.tobytes())]))
    if known is None or name in NOT_WEIGHTS:
        with pytest.raises(CheckpointError, match=rf"1 tensors .* t \({name}\)"):
            open_gguf(path)
        return
    with open_gguf(path) as store:
        assert (store["t"].dtype, store["t"].shape) == (name, (ROWS, blocks * block))
        values = store["t"].to_f32()
    with np.errstate(all="ignore"):
        expected = dequantize(stored, GGMLQuantizationType(number))
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, expected)
    assert not values[0].any()
    assert np.unique(values[2:]).size > 2


def test_enough_types_are_known() -> None:
    readable = {sizes(n)[0] for n in range(40) if sizes(n)} - NOT_WEIGHTS
    assert len(readable) >= 25
    assert {"F32", "F16", "BF16", "Q4_0", "Q8_0", "Q6_K", "IQ4_NL", "MXFP4"} <= readable
