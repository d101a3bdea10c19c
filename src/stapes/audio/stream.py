"""Any recording, from a path, bytes, a stream or an array, as blocks of a second or less."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stapes.audio.arrays import ARRAY_NAME, array_blocks
from stapes.audio.decode import Block, Decoded
from stapes.audio.files import Report, file_blocks
from stapes.audio.mix import Mixdown
from stapes.audio.recording import SAMPLE_RATE
from stapes.audio.source import AudioSource, open_source
from stapes.errors import RequestError

BLOCK_SAMPLES = SAMPLE_RATE
"""One second: many times longer than what a decoder gives at once, and still only 64 KB."""


class AudioStream:
    """A recording that is decoded while it is read, once, from front to end.

    Iterating gives f32 [n], n <= 16,000: mono, 16 kHz, finite, the samples of `read_audio`, but not
    normalised, since a peak that exceeds 1 is known only when all is read. Whoever takes a part of
    it normalises that part (`pieces_of` does). Memory does not grow with the recording. Another
    ``target_rate`` than 16 kHz gives samples at that rate.

    Raises (when it is opened, or along the way):
        AudioError: nothing usable: unreadable, no audio, not finite. Samples that are not finite
            end the iteration with the error that counts them all; none of theirs is given before.
    """

    def __init__(
        self,
        name: str,
        blocks: Generator[Block],
        report: Report,
        target_rate: int = SAMPLE_RATE,
    ) -> None:
        self.name = name
        self._report = report
        self._mix = Mixdown(name, target_rate)
        self._losses: list[str] = []
        self._blocks = blocks
        self._samples = _regrouped(self._mixed())
        # The first block tells whether it is a recording at all, before anybody builds on it.
        self._first: NDArray[np.float32] | None = next(self._samples)

    @property
    def expected_s(self) -> float | None:
        """Duration that the file promises or lets expect; None when nothing is known."""
        return self._report.decoded.expected_s

    @property
    def duration_s(self) -> float:
        """Seconds decoded so far (source samples / source rate): at the end, the true duration."""
        return self._mix.duration_s

    @property
    def mono_cancelled(self) -> bool:
        """Whether the channels, as far as they were read, cancel each other when averaged."""
        return self._mix.mono_cancelled

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was lost or looks wrong; complete once all is read."""
        return (*self._report.warnings, *self._losses, *self._mix.warnings())

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return self

    def __next__(self) -> NDArray[np.float32]:
        first, self._first = self._first, None
        return next(self._samples) if first is None else first

    def close(self) -> None:
        """Stop decoding; there are no more blocks."""
        self._first = None
        self._samples.close()
        self._blocks.close()

    def _mixed(self) -> Iterator[NDArray[np.float32]]:
        for block, rate in self._blocks:
            samples = self._mix.add(block, rate)
            if self._mix.is_finite:
                yield samples
        self._losses = self._report.losses(self.name, self._mix.duration_s)
        yield self._mix.finish()


@contextmanager
def open_stream(
    source: AudioSource | ArrayLike,
    sample_rate: int | None = None,
    *,
    target_rate: int = SAMPLE_RATE,
) -> Iterator[AudioStream]:
    """Open a recording to be read block by block.

    Args:
        source: as for `read_audio`; or samples as for `audio_from_array`, with their rate.
        sample_rate: Hz, for an array and nothing else.
        target_rate: Hz of the samples that the stream gives.

    Raises:
        AudioError: see `AudioStream`.
        RequestError: ``source`` is of a wrong type, or its rate is missing or out of place.
    """
    if sample_rate is None and not isinstance(source, np.ndarray):
        with file_stream(source, target_rate) as stream:  # type: ignore[arg-type]
            yield stream
        return
    if sample_rate is None:
        raise RequestError("An array of samples needs its sample_rate.")
    if isinstance(source, (str, os.PathLike, bytes, bytearray)) or hasattr(source, "read"):
        raise RequestError("sample_rate belongs to arrays; a file says its own.")
    yield array_stream(source, sample_rate, target_rate)


@contextmanager
def file_stream(source: AudioSource, target_rate: int = SAMPLE_RATE) -> Iterator[AudioStream]:
    """A path, bytes or a binary stream; see `read_audio`."""
    with open_source(source) as opened:
        report = Report()
        stream = AudioStream(opened.name, file_blocks(opened, report), report, target_rate)
        try:
            yield stream
        finally:
            stream.close()


def array_stream(array: ArrayLike, sample_rate: int, target_rate: int = SAMPLE_RATE) -> AudioStream:
    """Samples that the caller holds, as a stream; see `audio_from_array`."""
    blocks, seconds = array_blocks(array, sample_rate)
    report = Report(decoded=Decoded(expected_s=seconds))
    return AudioStream(ARRAY_NAME, blocks, report, target_rate)


def _regrouped(
    parts: Iterator[NDArray[np.float32]],
) -> Generator[NDArray[np.float32]]:
    """The same samples in blocks of a second; the last is shorter, and none is empty."""
    held: list[NDArray[np.float32]] = []
    count = 0
    for part in parts:
        held.append(part)
        count += part.size
        if count >= BLOCK_SAMPLES:
            joined = np.concatenate(held)
            whole = count - count % BLOCK_SAMPLES
            for start in range(0, whole, BLOCK_SAMPLES):
                yield joined[start : start + BLOCK_SAMPLES]
            held, count = [joined[whole:]], count - whole
    if count:
        yield np.concatenate(held)
