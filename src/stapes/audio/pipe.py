"""Samples that come through a pipe as they are spoken: raw PCM, or a WAV file without an end."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.audio.arrays import MAX_CHANNELS, check_rate
from stapes.audio.riff import FLOAT, PCM, PLACEHOLDER_FROM, is_wav, parse_format
from stapes.errors import AudioError

Read = Callable[[int], bytes]
"""At most so many bytes, as soon as there are any; b"" at the end."""

_MAGICS = (b"fLaC", b"OggS", b"ID3", b"\x1aE\xdf\xa3", b"FORM", b"#!AMR", b"caff")
_MOST_HEADER = 1 << 20  # bytes in front of the samples of a WAV file
_BLOCK_BYTES = 1 << 16
_DTYPES = {(PCM, 1): "u1", (PCM, 2): "<i2", (PCM, 4): "<i4", (FLOAT, 4): "<f4", (FLOAT, 8): "<f8"}


@dataclass(frozen=True)
class PcmPipe:
    """What a pipe holds.

    Attributes:
        rate: Hz.
        blocks: samples (n, channels) each, of the dtypes that `Intake` takes, as they come.
    """

    rate: int
    blocks: Iterator[NDArray[np.generic]]


def open_pipe(read: Read, raw_rate: int, name: str) -> PcmPipe:
    """Begin to read a pipe.

    Args:
        read: gives its bytes.
        raw_rate: Hz of samples without a header: 16-bit integers, little endian, one channel.
        name: for messages.

    Raises:
        AudioError: nothing, a WAV header that cannot be read, or a compressed file.
    """
    head = _read_exactly(read, 12)
    if not head:
        raise AudioError(f"{name} holds no audio: it is empty (0 bytes).")
    if is_wav(head):
        return _wav_pipe(read, name)
    if head.startswith(_MAGICS) or head[4:8] == b"ftyp":
        raise AudioError(
            f"{name} holds a compressed file, which cannot be read as it comes: let ffmpeg make "
            "WAV of it (ffmpeg -i FILE -f wav -)."
        )
    samples = _Samples("<i2", 2, 1)
    return PcmPipe(check_rate(raw_rate), samples.blocks(read, head, None))


def _wav_pipe(read: Read, name: str) -> PcmPipe:
    form, passed = None, 0
    while passed < _MOST_HEADER:
        head = _read_exactly(read, 8)
        if len(head) < 8:
            break
        kind, size = struct.unpack("<4sI", head)
        if kind == b"data":
            if form is None:
                break
            endless = size == 0 or size >= PLACEHOLDER_FROM
            return PcmPipe(form.rate, form.samples.blocks(read, b"", None if endless else size))
        body = _read_exactly(read, min(size + size % 2, _MOST_HEADER))
        passed += len(body) + 8
        if kind == b"fmt ":
            form = _format(body[:size], name)
    raise AudioError(f"{name} has a damaged WAV header: no format and samples in {passed} bytes.")


@dataclass(frozen=True)
class _Form:
    rate: int
    samples: _Samples


def _format(chunk: bytes, name: str) -> _Form:
    wav, _ = parse_format(chunk, name)
    if wav is None or wav.channels > MAX_CHANNELS:
        raise AudioError(
            f"{name} is a WAV file of a kind that cannot be read as it comes: give at most "
            f"{MAX_CHANNELS} channels of integers or floats."
        )
    dtype = _DTYPES.get((wav.tag, wav.sample_bytes))
    if dtype is None and (wav.tag, wav.sample_bytes) != (PCM, 3):
        raise AudioError(
            f"{name} is a WAV file with samples of {8 * wav.sample_bytes} bits in encoding "
            f"{wav.tag}, which cannot be read as they come."
        )
    return _Form(check_rate(wav.rate), _Samples(dtype, wav.sample_bytes, wav.channels))


@dataclass(frozen=True)
class _Samples:
    """How bytes become samples; dtype None: integers of 24 bits."""

    dtype: str | None
    sample_bytes: int
    channels: int

    def blocks(self, read: Read, first: bytes, most: int | None) -> Iterator[NDArray[np.generic]]:
        """Whole samples of all channels; bytes beyond `most` are something else."""
        frame, held = self.sample_bytes * self.channels, first
        left = None if most is None else most - len(first)
        while True:
            whole = len(held) // frame * frame
            if whole:
                yield self._decode(held[:whole])
            held = held[whole:]
            wanted = _BLOCK_BYTES if left is None else min(_BLOCK_BYTES, left)
            more = read(wanted) if wanted else b""
            if not more:
                return
            held += more
            left = None if left is None else left - len(more)

    def _decode(self, data: bytes) -> NDArray[np.generic]:
        if self.dtype is not None:
            return np.frombuffer(data, self.dtype).reshape(-1, self.channels)
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4").reshape(-1, self.channels)


def _read_exactly(read: Read, count: int) -> bytes:
    """So many bytes; fewer only at the end."""
    data = b""
    while len(data) < count:
        more = read(count - len(data))
        if not more:
            break
        data += more
    return data
