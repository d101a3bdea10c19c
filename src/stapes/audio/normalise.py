"""The level that the models expect."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stapes.errors import AudioError


def normalise(samples: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    """Bring f32 [n], n > 0, into [-1, 1], in place: divided by the peak when it exceeds 1.

    As the reference does (qwen-asr 0.0.6), after mixing and resampling. Quiet recordings are left
    as they are.

    Raises:
        AudioError: the resampled signal overflowed.
    """
    peak = max(float(samples.max()), -float(samples.min()))
    if not np.isfinite(peak):
        raise AudioError(f"{name} holds values too large to be resampled.")
    if peak > 1.0:
        samples /= np.float32(peak)
        np.clip(samples, -1.0, 1.0, out=samples)
    return samples
