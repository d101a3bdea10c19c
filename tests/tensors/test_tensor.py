from __future__ import annotations

import numpy as np
import pytest

from stapes.errors import CheckpointError
from stapes.tensors import Tensor, widen


def tensor_of(words: np.ndarray, dtype: str) -> Tensor:
    return Tensor("t", dtype, words.shape, memoryview(words.tobytes()))


def test_every_bf16_word_widens_to_its_bits_shifted():
    words = np.arange(65536, dtype=np.uint16)
    wide = tensor_of(words, "BF16").to_f32()
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide.view(np.uint32), words.astype(np.uint32) << 16)


def test_bf16_special_values():
    words = np.array([0x3F80, 0x8000, 0x7F7F, 0x0001, 0x7F80, 0x7FC0], dtype=np.uint16)
    one, minus_zero, largest, smallest, infinity, nan = tensor_of(words, "BF16").to_f32()
    assert one == 1.0
    assert minus_zero == 0.0
    assert np.signbit(minus_zero)
    assert largest == np.float32(3.3895314e38)
    assert smallest == np.float32(2.0**-133)
    assert infinity == np.inf
    assert np.isnan(nan)


def test_every_f16_word_widens():
    words = np.arange(65536, dtype=np.uint16).view(np.float16)
    wide = tensor_of(words, "F16").to_f32()
    assert wide.dtype == np.float32
    numbers = ~np.isnan(words)
    np.testing.assert_array_equal(wide[numbers], words[numbers].astype(np.float64))
    assert np.isnan(wide[~numbers]).all()


def test_f32_is_a_read_only_view():
    values = np.array([[1.5, -0.0], [np.inf, 1e-45]], dtype=np.float32)
    tensor = tensor_of(values, "F32")
    wide = tensor.to_f32()
    np.testing.assert_array_equal(wide.view(np.uint32), values.view(np.uint32))
    assert np.shares_memory(wide, np.frombuffer(tensor.data, np.uint8))
    assert not wide.flags.writeable


@pytest.mark.parametrize(
    ("dtype", "kind"), [("F32", np.float32), ("F16", np.float16), ("BF16", np.uint16)]
)
def test_raw_gives_the_stored_words_shaped(dtype: str, kind: type):
    words = np.arange(6, dtype=kind).reshape(2, 3)
    raw = tensor_of(words, dtype).raw()
    assert raw.dtype == kind
    assert raw.shape == (2, 3)
    np.testing.assert_array_equal(raw, words)


def test_scalars_and_empty_tensors():
    assert tensor_of(np.array(2.5, dtype=np.float32), "F32").to_f32().shape == ()
    assert tensor_of(np.zeros((0, 3), dtype=np.float16), "F16").to_f32().shape == (0, 3)


def test_unaligned_words_are_copied_into_place():
    data = memoryview(b"\0" + np.array([1.0, 2.0], dtype=np.float32).tobytes())[1:]
    raw = Tensor("t", "F32", (2,), data).raw()
    assert raw.flags.aligned
    assert not raw.flags.writeable
    np.testing.assert_array_equal(raw, [1.0, 2.0])


@pytest.mark.parametrize("dtype", ["I64", "F64", "F8_E4M3", "BOOL", "U16"])
def test_other_dtypes_are_refused_by_name(dtype: str):
    tensor = Tensor("layers.0.weight", dtype, (1,), memoryview(bytes(8)))
    for read in (tensor.raw, tensor.to_f32):
        with pytest.raises(CheckpointError, match=rf"'layers\.0\.weight'.*{dtype}"):
            read()


def test_widen_works_on_blocks_of_rows():
    words = np.arange(40, dtype=np.uint16).reshape(10, 4)
    whole = tensor_of(words, "BF16").to_f32()
    np.testing.assert_array_equal(widen(words[3:7]), whole[3:7])
