"""The audio encoder over a recording that grows: what is finished is encoded once."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.models.qwen3_asr.config import CHUNK_FRAMES, CHUNK_TOKENS
from stapes.models.qwen3_asr.encoder import AudioEncoder

F32 = NDArray[np.float32]

_RUN_CHUNKS = 4  # of one run of the stem, as the encoder itself has it


@dataclass(frozen=True, eq=False)
class _Kept:
    """Mel frames and what was made of them."""

    mel: F32
    rows: F32

    def is_of(self, mel: F32) -> bool:
        return np.array_equal(self.mel, mel)


def window_frames(encoder: AudioEncoder) -> int:
    """Mel frames of one window of the encoder's attention."""
    return encoder.spec.window_tokens // CHUNK_TOKENS * CHUNK_FRAMES


class RunningEncoder:
    """Encodes the beginnings of one recording, bit for bit as `AudioEncoder.encode`.

    The convolutions' rows of whole chunks (1 s) and the embeddings of whole windows (8 s) are kept
    together with the frames they were made of, and used again for the same frames.

    Args:
        encoder: that computes the rows.
    """

    def __init__(self, encoder: AudioEncoder) -> None:
        self._encoder = encoder
        self._window = window_frames(encoder)
        self._chunks: dict[int, _Kept] = {}
        self._windows: dict[int, _Kept] = {}

    def encode(self, mel: F32) -> Generator[None, None, F32]:
        """Mel [frames, num_mel_bins], frames > 0 -> embeddings [tokens(frames), output_dim].

        A generator that pauses behind each run of a network and returns the embeddings.
        """
        parts = []
        for index, first in enumerate(range(0, mel.shape[0], self._window)):
            part = mel[first : first + self._window]
            parts.append((yield from self._encode_window(index, part)))
        return np.concatenate(parts)

    def _encode_window(self, index: int, mel: F32) -> Generator[None, None, F32]:
        kept = self._windows.get(index)
        if kept is not None and kept.is_of(mel):
            return kept.rows
        rows = yield from self._stem(index * self._window // CHUNK_FRAMES, mel)
        embeddings = self._encoder.body(rows)
        yield
        if mel.shape[0] == self._window:
            self._windows[index] = _Kept(mel.copy(), embeddings)
        return embeddings

    def _stem(self, first: int, mel: F32) -> Generator[None, None, F32]:
        """Rows of the chunks of one window; `first` is the number of its first chunk."""
        whole = mel.shape[0] // CHUNK_FRAMES
        chunks = [mel[i * CHUNK_FRAMES : (i + 1) * CHUNK_FRAMES] for i in range(whole)]
        fresh = [i for i, chunk in enumerate(chunks) if not self._has(first + i, chunk)]
        for start in range(0, len(fresh), _RUN_CHUNKS):
            numbers = fresh[start : start + _RUN_CHUNKS]
            made = self._encoder.stem(np.concatenate([chunks[i] for i in numbers]))
            each = made.reshape(len(numbers), CHUNK_TOKENS, -1)
            for i, rows in zip(numbers, each, strict=True):
                self._chunks[first + i] = _Kept(chunks[i].copy(), rows.copy())
            yield
        parts = [self._chunks[first + i].rows for i in range(whole)]
        rest = mel[whole * CHUNK_FRAMES :]
        if rest.shape[0]:
            parts.append(self._encoder.stem(rest))
            yield
        return np.concatenate(parts)

    def _has(self, number: int, mel: F32) -> bool:
        kept = self._chunks.get(number)
        return kept is not None and kept.is_of(mel)
