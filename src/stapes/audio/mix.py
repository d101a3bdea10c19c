"""Blocks of any rate and channel count become one mono signal at one rate.

Block by block, so that hours of 48 kHz audio never stand in memory at once. Channels are averaged
before the one resampling step; both are linear, so the order changes nothing but the cost. The
level is left as it is: only the whole has a peak.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

from stapes.audio.recording import SAMPLE_RATE
from stapes.errors import AudioError

MIN_RATE = 1_000
MAX_RATE = 1_000_000
"""Hz. Outside lies no recording of speech, but a damaged header that would blow up the output."""

CANCELLATION_RATIO = 0.01
"""Mono energy / mean channel energy below which the channels are said to cancel (-20 dB).
Unrelated channels keep 1 / channels, one speaking channel among six keeps 1 / 6."""

_QUALITY = "HQ"  # soxr's 20-bit filters, which librosa chooses, too
_NOTHING = np.zeros(0, np.float32)
_HALF_RANGE: dict[str, int] = {"u1": 2**7, "i2": 2**15, "i4": 2**31, "i8": 2**63}


def as_float(block: NDArray[Any]) -> NDArray[np.float32]:
    """Scale u8, i16, i32, i64 to [-1, 1) and cast floats as they are; f32, always a copy."""
    half = _HALF_RANGE.get(block.dtype.str[1:])
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf and is reported later
        scaled = block.astype(np.float32)
    if half is None:
        return scaled
    if block.dtype.kind == "u":
        scaled -= half
    scaled *= np.float32(1.0 / half)
    return scaled


def resample(samples: NDArray[np.float32], rate: int, target_rate: int) -> NDArray[np.float32]:
    """A whole mono signal, f32 [n], from one rate to another: f32 [about n * target / rate]."""
    resampled: NDArray[np.float32] = soxr.resample(samples, rate, target_rate, quality=_QUALITY)
    return resampled


class Mixdown:
    """Turns the blocks of one recording into one signal, and notes what is wrong with them.

    Blocks may differ in rate and channels; each run of blocks at one rate is resampled as a whole.
    Values that are not finite become zero and are counted, so that :meth:`finish` can name them.

    Args:
        name: how messages call the recording.
        target_rate: Hz of the signal.
    """

    def __init__(self, name: str, target_rate: int = SAMPLE_RATE) -> None:
        self._name = name
        self._target_rate = target_rate
        self._stream: soxr.ResampleStream | None = None
        self._rate = target_rate
        self._samples_at: dict[int, int] = {}
        self._not_finite = 0
        self._first_not_finite: tuple[int, float] | None = None
        self._channel_energy = 0.0
        self._mono_energy = 0.0
        self._made = 0

    @property
    def duration_s(self) -> float:
        """Seconds taken in so far, by source samples / source rate."""
        return sum(count / rate for rate, count in self._samples_at.items())

    @property
    def is_finite(self) -> bool:
        """Whether all values so far are numbers; where not, :meth:`finish` will raise."""
        return self._first_not_finite is None

    @property
    def mono_cancelled(self) -> bool:
        """Whether the channels so far cancel each other in their mean."""
        return self._mono_energy < CANCELLATION_RATIO * self._channel_energy

    def add(self, block: NDArray[Any], rate: int) -> NDArray[np.float32]:
        """Take in one block; return the samples that it completes, perhaps none.

        Args:
            block: [channels, n] u8, i16, i32, i64, f32 or f64.
            rate: Hz, from `MIN_RATE` to `MAX_RATE`.

        Returns:
            f32 [m], mono, at the target rate, finite; neither a view of the block nor normalised.

        Raises:
            AudioError: the resampled signal overflowed.
        """
        if block.shape[1] == 0:
            return _NOTHING
        channels = as_float(block)
        self._zero_not_finite(channels, rate)
        self._samples_at[rate] = self._samples_at.get(rate, 0) + block.shape[1]
        return self._checked(self._resample(self._to_mono(channels), rate))

    def finish(self) -> NDArray[np.float32]:
        """The samples that the resampler still held, as :meth:`add` returns them.

        Raises:
            AudioError: there were no samples, or some that are not finite.
        """
        rest = self._checked(self._flush())
        total = sum(self._samples_at.values())
        if self._first_not_finite is not None:
            index, seconds = self._first_not_finite
            raise AudioError(
                f"{self._name} holds values that are not numbers: {self._not_finite} of its samples"
                f" are NaN or infinite, the first at sample {index} ({seconds:.3f} s)."
            )
        if total == 0:
            raise AudioError(f"{self._name} holds no audio: it has no samples.")
        if self._made == 0:
            raise AudioError(f"{self._name} is too short: it has {total} samples in all.")
        return rest

    def warnings(self) -> tuple[str, ...]:
        """Sentences about what looks wrong in the samples so far."""
        if not self.mono_cancelled:
            return ()
        percent = 100 * self._mono_energy / self._channel_energy
        return (
            f"The channels cancel each other: their mean keeps {percent:.2g}% of their energy"
            " (one of them is probably inverted).",
        )

    def _zero_not_finite(self, channels: NDArray[np.float32], rate: int) -> None:
        """Count NaN and infinity and blank them, so that the rest can still be counted."""
        bad = ~np.isfinite(channels)
        if not bad.any():
            return
        if self._first_not_finite is None:
            index = int(bad.any(axis=0).argmax())
            before = sum(self._samples_at.values())
            self._first_not_finite = (before + index, self.duration_s + index / rate)
        self._not_finite += int(bad.sum())
        channels[bad] = 0.0

    def _to_mono(self, channels: NDArray[np.float32]) -> NDArray[np.float32]:
        if channels.shape[0] == 1:
            return channels.reshape(-1)
        wide = channels.astype(np.float64)
        mono: NDArray[np.float64] = wide.mean(axis=0)
        self._channel_energy += float(np.sum(wide * wide)) / wide.shape[0]
        self._mono_energy += float(np.dot(mono, mono))
        return mono.astype(np.float32)

    def _resample(self, mono: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
        before = _NOTHING
        if rate != self._rate:
            before, self._rate = self._flush(), rate
        if rate != self._target_rate:
            if self._stream is None:
                self._stream = soxr.ResampleStream(
                    rate, self._target_rate, 1, dtype="float32", quality=_QUALITY
                )
            mono = self._stream.resample_chunk(mono)
        return np.concatenate([before, mono]) if before.size else mono

    def _flush(self) -> NDArray[np.float32]:
        """What the resampler of the present run still holds."""
        if self._stream is None:
            return _NOTHING
        rest: NDArray[np.float32] = self._stream.resample_chunk(_NOTHING, last=True)
        self._stream = None
        return rest

    def _checked(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        self._made += samples.size
        if samples.size and not np.isfinite(samples).all():
            raise AudioError(f"{self._name} holds values too large to be resampled.")
        return samples
