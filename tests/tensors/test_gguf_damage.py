"""GGUF files that are wrong: each way has its error, in one sentence with the numbers in it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from stapes.errors import CheckpointError, TensorFileError
from stapes.tensors.gguf import open_gguf
from tensors.gguf_bytes import (
    ARRAY,
    BOOL,
    F32,
    Q8_0,
    Q8_K,
    TEXT,
    U8,
    U32,
    Blob,
    array,
    f32_blob,
    gguf_bytes,
    pair,
    text,
    u32,
)

TWO = [f32_blob("first", 4), f32_blob("second", 5, 3)]
GOOD = gguf_bytes(TWO, [u32("general.alignment", 32), pair("name", TEXT, text("a model"))])


def refused(tmp_path: Path, data: bytes, kind: type[Exception] = TensorFileError) -> str:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(kind) as caught:
        open_gguf(path)
    message = str(caught.value)
    assert str(path) in message
    assert message.endswith(".")
    return message


# -- truncation ----------------------------------------------------------------------------------


def test_a_file_cut_off_anywhere_is_refused(tmp_path):
    end = len(GOOD) - 4  # the last tensor takes 60 bytes, 4 of padding behind it
    path = tmp_path / "x.gguf"
    for length in range(len(GOOD)):
        if length == end:
            continue
        path.write_bytes(GOOD[:length])
        with pytest.raises(TensorFileError):
            open_gguf(path)


@pytest.mark.parametrize("keep", [0.25, 0.5, 0.99])
def test_a_truncated_file_says_what_is_missing(tmp_path, keep):
    blobs = [f32_blob(f"blk.{i}", 64, 8) for i in range(10)]
    whole = gguf_bytes(blobs)
    message = refused(tmp_path, whole[: int(len(whole) * keep)])
    lost = sum((i + 1) * 2048 > int(len(whole) * keep) - (len(whole) - 20480) for i in range(10))
    assert f"{len(whole)}, so that {lost} of 10 tensors are cut off" in message


def test_one_missing_byte_is_missed(tmp_path):
    whole = gguf_bytes([f32_blob("only", 8)])
    assert "1 of 1 tensors are cut off, 'only' first" in refused(tmp_path, whole[:-1])


def test_padding_is_there_or_not(tmp_path):
    assert "ends within its padding" in refused(tmp_path, GOOD[:-1])


def test_what_no_tensor_names_is_refused(tmp_path):
    assert "bytes that no tensor names" in refused(tmp_path, GOOD + b"\0")


def test_nothing_at_all(tmp_path):
    assert "is empty" in refused(tmp_path, b"")
    with pytest.raises(TensorFileError, match="cannot be read"):
        open_gguf(tmp_path / "absent.gguf")
    with pytest.raises(TensorFileError, match="cannot be read"):
        open_gguf(tmp_path)


# -- the start -----------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [b"GGML", b"lmgg", b"tjgg", b"fmgg"])
def test_older_formats_are_known_by_name(tmp_path, magic):
    assert "older than GGUF" in refused(tmp_path, gguf_bytes(TWO, magic=magic))


@pytest.mark.parametrize("start", [b"PK\3\4", b"FUGG", b"\0\0\0\0", b"GG", b'{"a'])
def test_other_files_are_no_gguf(tmp_path, start):
    assert "is no GGUF file" in refused(tmp_path, start + GOOD[len(start) + 1 :] * (len(start) > 2))


@pytest.mark.parametrize("version", [0, 1, 2, 4, 0x7FFFFFFF])
def test_other_versions(tmp_path, version):
    data = gguf_bytes(TWO, version=struct.pack("<I", version))
    assert f"GGUF version {version}; only version 3" in refused(tmp_path, data)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_big_endian_files_are_recognised(tmp_path, version):
    data = gguf_bytes(TWO, version=struct.pack(">I", version))
    assert f"big-endian GGUF file (version {version} " in refused(tmp_path, data)


@pytest.mark.parametrize("count", [2**24, 2**32, 2**63, 2**64 - 1])
def test_absurd_counts(tmp_path, count):
    assert f"{count} tensors" in refused(tmp_path, gguf_bytes(TWO, n_tensors=count))
    assert f"{count} metadata pairs" in refused(tmp_path, gguf_bytes(TWO, n_pairs=count))


def test_counts_that_are_off_by_one(tmp_path):
    pairs = [u32("a", 1), u32("b", 2)]
    for change in (-1, 1):
        refused(tmp_path, gguf_bytes(TWO, pairs, n_pairs=2 + change))
        refused(tmp_path, gguf_bytes(TWO, pairs, n_tensors=2 + change))


# -- metadata ------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [200, 2**31, 2**63, 2**64 - 1])
def test_absurd_lengths_of_texts(tmp_path, length):
    size = struct.pack("<Q", length)
    for pairs in (
        pair("k", TEXT, size + b"abc"),
        array("k", TEXT, 2, text("fine") + size + b"abc"),
    ):
        message = refused(tmp_path, gguf_bytes([], [pairs]))
        assert str(length) in message or str(length + 8) in message
    key = size + b"abc" + struct.pack("<I", U8) + b"\0"
    assert str(length) in refused(tmp_path, gguf_bytes([], [key]))


@pytest.mark.parametrize("count", [100, 2**31, 2**61, 2**62, 2**63, 2**64 - 1])
@pytest.mark.parametrize("kind", [U8, U32, 10, 12, BOOL, TEXT])
def test_absurd_lengths_of_arrays(tmp_path, count, kind):
    assert "'k'" in refused(tmp_path, gguf_bytes([], [array("k", kind, count, b"abcdefgh")]))


@pytest.mark.parametrize("kind", [13, 99, 2**32 - 1])
def test_unknown_kinds_of_values(tmp_path, kind):
    assert f"unknown type {kind}" in refused(
        tmp_path, gguf_bytes([], [pair("k", kind, b"12345678")])
    )
    assert f"unknown type {kind}" in refused(
        tmp_path, gguf_bytes([], [array("k", kind, 1, b"12345678")])
    )


def test_arrays_of_arrays(tmp_path):
    inner = struct.pack("<IQ", U8, 1) + b"\1"
    assert f"unknown type {ARRAY}" in refused(
        tmp_path, gguf_bytes([], [array("k", ARRAY, 1, inner)])
    )


def test_texts_that_are_not_utf_8(tmp_path):
    assert "UTF-8" in refused(tmp_path, gguf_bytes([], [pair("k", TEXT, text(b"a\xff"))]))
    assert "UTF-8" in refused(tmp_path, gguf_bytes([], [array("k", TEXT, 1, text(b"\xc3"))]))
    assert "UTF-8" in refused(tmp_path, gguf_bytes([], [pair(b"\xff", U8, b"\0")]))


def test_booleans_that_are_neither(tmp_path):
    assert "neither 0 nor 1" in refused(tmp_path, gguf_bytes([], [pair("k", BOOL, b"\2")]))
    assert "neither 0 nor 1" in refused(tmp_path, gguf_bytes([], [array("k", BOOL, 3, b"\0\1\3")]))


def test_keys_that_appear_twice(tmp_path):
    assert "'k' appears twice" in refused(tmp_path, gguf_bytes([], [u32("k", 1), u32("k", 1)]))


def test_keys_that_are_too_long(tmp_path):
    assert "more than 65535" in refused(tmp_path, gguf_bytes([], [u32("k" * 65536, 1)]))


@pytest.mark.parametrize("alignment", [0, 3, 24, 2**17, 2**31, 2**32 - 1])
def test_alignments_that_are_none(tmp_path, alignment):
    message = refused(tmp_path, gguf_bytes(TWO, [u32("general.alignment", alignment)]))
    assert f"general.alignment is {alignment}, but must be a power of two" in message


def test_alignments_of_another_kind(tmp_path):
    for value in (
        pair("general.alignment", TEXT, text("32")),
        pair("general.alignment", BOOL, b"\1"),
    ):
        assert "general.alignment" in refused(tmp_path, gguf_bytes(TWO, [value]))


def test_an_alignment_that_the_data_does_not_have(tmp_path):
    """Said to be 64, laid out by 16: refused, and never read shifted."""
    data = gguf_bytes(TWO, [u32("general.alignment", 64)], alignment=16)
    assert "tensor 'second' overlaps" in refused(tmp_path, data)


# -- tensors -------------------------------------------------------------------------------------


def blob(*dims: int, kind: int = F32, name: str = "t", offset: int | None = None) -> Blob:
    return Blob(name, dims, kind, bytes(64), offset)


def test_names_that_appear_twice(tmp_path):
    assert "tensor 'a' appears twice" in refused(
        tmp_path, gguf_bytes([f32_blob("a", 8), f32_blob("a", 8)])
    )


def test_names_that_are_too_long(tmp_path):
    assert "65 bytes, more than 64" in refused(tmp_path, gguf_bytes([blob(16, name="n" * 65)]))


@pytest.mark.parametrize("rank", [5, 100, 2**20])
def test_too_many_dimensions(tmp_path, rank):
    assert f"'t' has {rank} dimensions, more than 4" in refused(
        tmp_path, gguf_bytes([blob(*[1] * rank)])
    )


@pytest.mark.parametrize(
    "dims",
    [
        (2**62, 4),  # 2^64 values: 0 in 64 bits
        (2**32, 2**32),
        (2**31, 2**31, 4),
        (2**62,),  # 2^64 bytes
        (2**63,),
        (2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1),
        (0, 2**63),
    ],
)
def test_sizes_that_wrap_around(tmp_path, dims):
    assert "larger than any memory" in refused(tmp_path, gguf_bytes([blob(*dims)]))


def test_large_sizes_that_do_not(tmp_path):
    assert "1 of 1 tensors are cut off" in refused(tmp_path, gguf_bytes([blob(2**40)]))


@pytest.mark.parametrize("dims", [(33, 1), (16, 2), (1, 32), ()])
def test_rows_that_are_no_whole_blocks(tmp_path, dims):
    assert "no whole number of Q8_0's blocks of 32" in refused(
        tmp_path, gguf_bytes([blob(*dims, kind=Q8_0)])
    )


@pytest.mark.parametrize("offset", [1, 16, 96, 2**40, 2**63, 2**64 - 32])
def test_offsets_that_are_not_where_the_tensor_is_due(tmp_path, offset):
    tensors = [f32_blob("a", 16), Blob("b", (16,), F32, bytes(64), offset)]
    refused(tmp_path, gguf_bytes(tensors))


def test_tensors_that_overlap_or_leave_holes(tmp_path):
    first, second = f32_blob("a", 16), f32_blob("b", 16)
    overlap = Blob("b", (16,), F32, second.data, 32)
    hole = Blob("b", (16,), F32, bytes(32) + second.data, 96)
    assert "'b' overlaps" in refused(tmp_path, gguf_bytes([first, overlap]))
    assert "'b' leaves a hole" in refused(tmp_path, gguf_bytes([first, hole]))


def test_types_that_cannot_be_read_are_listed_all(tmp_path):
    tensors = [
        blob(16, name="good"),
        blob(16, name="integers", kind=26),
        blob(256, name="sums", kind=Q8_K),
        blob(16, name="removed", kind=4),
        blob(16, name="later", kind=2**31),
    ]
    message = refused(tmp_path, gguf_bytes(tensors), CheckpointError)
    assert "4 tensors of types that cannot be read" in message
    for shown in (
        "integers (I32)",
        "sums (Q8_K)",
        "removed (unknown type 4)",
        f"later (unknown type {2**31})",
    ):
        assert shown in message
    assert "good" not in message
