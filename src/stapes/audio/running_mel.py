"""Log-mel features of a recording that grows: frames that are settled are computed once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stapes.audio.mel import BLOCK_FRAMES, HOP, MIN_SAMPLES, N_FFT, compress, log_mel, log_power

F32 = NDArray[np.float32]


class RunningMel:
    """Features of the beginnings of one recording, bit for bit those of `log_mel`.

    The last windows of a beginning reach beyond its end, where they see a reflection; their block
    of 32 frames is computed anew each time.

    Args:
        n_mels: number of mel bands.
        floor_frames: see `log_mel`.
    """

    def __init__(self, n_mels: int, floor_frames: int) -> None:
        self._n_mels = n_mels
        self._floor_frames = floor_frames
        self._blocks: list[F32] = []  # [32, n_mels] each, settled

    def features(self, samples: F32) -> F32:
        """Features of a beginning of the recording.

        Args:
            samples: f32 [n], n > 0, mono, 16 kHz, from the recording's first sample on; n may be
                smaller than it was before.

        Returns:
            f32 [max(n, 8000) // 160, n_mels].
        """
        if samples.size < MIN_SAMPLES:
            return log_mel(samples, self._n_mels, self._floor_frames)
        settled = (samples.size - N_FFT // 2) // HOP + 1  # frames whose window ends within
        whole = min(settled, samples.size // HOP) // BLOCK_FRAMES
        known = len(self._blocks)
        if whole > known:
            end = (whole * BLOCK_FRAMES - 1) * HOP + N_FFT // 2
            fresh = log_power(samples[:end], self._n_mels, known * BLOCK_FRAMES)
            blocks = fresh[: (whole - known) * BLOCK_FRAMES]
            self._blocks.extend(blocks.reshape(-1, BLOCK_FRAMES, self._n_mels))
        tail = log_power(samples, self._n_mels, whole * BLOCK_FRAMES)
        return compress(np.concatenate([*self._blocks[:whole], tail]), self._floor_frames)
