"""What every other module makes or reads: a mono recording at the models' rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
"""Hz. The rate that speech models of this family are trained at."""


@dataclass(frozen=True, eq=False)
class Audio:
    """One recording, ready for feature extraction.

    Attributes:
        samples: f32 [n], mono, 16 kHz, finite, within [-1, 1]; owned by this object.
        duration_s: true duration of what was decoded (source samples / source rate), before any
            padding and not rounded by the resampling.
        warnings: sentences about what was lost or looks wrong; they do not name the file.
    """

    samples: NDArray[np.float32]
    duration_s: float
    warnings: tuple[str, ...] = ()
