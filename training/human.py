"""Human test set: the digits that Debian's asterisk-core-sounds-en packages ship, concatenated.

The speaker is Allison Smith (CC-BY-SA-3.0). These recordings are never trained on.
"""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
from numpy.random import Generator

from training.dataset import Clip
from training.synthesize import RATE, trim
from training.voices import DIGITS

SOUNDS = Path("/usr/share/asterisk/sounds/en_US_f_Allison/digits")
PACKAGES = "asterisk-core-sounds-en-g722 asterisk-core-sounds-en-wav"


class MissingRecordingsError(FileNotFoundError):
    """The Debian packages with the recordings are not installed."""


def read_digit(digit: int, kind: str) -> np.ndarray:
    """One recorded digit at 16 kHz; `kind` is g722 (16 kHz) or wav (8 kHz)."""
    path = SOUNDS / f"{digit}.{kind}"
    if not path.exists():
        raise MissingRecordingsError(f"{path} is missing: apt-get install {PACKAGES}")
    with av.open(str(path), format=kind) as container:
        resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
        frames = [out for frame in container.decode(audio=0) for out in resampler.resample(frame)]
        frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


def pause(rng: Generator) -> np.ndarray:
    """Silence between two digits: nearly glued, usual, or long."""
    low, high = ((0.0, 0.1), (0.1, 0.5), (0.5, 1.5))[rng.choice(3, p=(0.3, 0.5, 0.2))]
    return np.zeros(int(rng.uniform(low, high) * RATE), np.float32)


def concatenate(digits: list[int], kind: str, rng: Generator) -> np.ndarray:
    """The recordings one after another, trimmed, with pauses between and around them."""
    pieces = [np.zeros(int(rng.uniform(0.05, 0.5) * RATE), np.float32)]
    for digit in digits:
        pieces += [trim(read_digit(digit, kind)), pause(rng)]
    return np.concatenate(pieces)


def human_clips(count: int = 1000, seed: int = 2026) -> list[Clip]:
    """Random strings of one to ten digits, half from each package."""
    rng = np.random.default_rng(seed)
    clips = []
    for index in range(count):
        digits = rng.integers(0, 10, size=rng.integers(1, 11)).tolist()
        kind = ("g722", "wav")[index % 2]
        words = " ".join(DIGITS[digit] for digit in digits)
        clips.append(Clip(concatenate(digits, kind, rng), words, f"allison-{kind}"))
    return clips
