"""Mean and standard deviation of Whisper's features, by which the tokenizer's are normalised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stapes.errors import CheckpointError
from stapes.models.vevo2.voice import F32
from stapes.tensors import open_safetensors
from stapes.tensors.torch_file import TorchFile
from stapes.weights import TensorLike

STATISTICS_FILE = "whisper_stats.pt"
"""Lies in the folders of the acoustic models."""


@dataclass(frozen=True, eq=False)
class WhisperStatistics:
    """mean and std, f32 [d_model] each; std > 0."""

    mean: F32
    std: F32

    def normalised(self, features: F32) -> F32:
        """(x - mean) / std of every row of f32 [n, d_model]."""
        result: F32 = (features - self.mean) / self.std
        return result


def read_statistics(path: Path, d_model: int) -> WhisperStatistics:
    """Read `whisper_stats.pt`, or a .safetensors file with the same two tensors.

    Raises:
        TensorFileError: the file is missing or damaged.
        CheckpointError: a tensor is missing, of another size, not finite, or no deviation.
    """
    if path.suffix == ".safetensors":
        with open_safetensors(path) as store:
            mean, std = (_vector(store[name], path, d_model) for name in ("mean", "std"))
    else:
        with TorchFile(path) as file:
            mean, std = (_vector(file[name], path, d_model) for name in ("mean", "std"))
    if (std <= 0).any():
        raise CheckpointError(f"{path} holds a standard deviation of {std.min():g}.")
    return WhisperStatistics(mean, std)


def _vector(tensor: TensorLike, path: Path, size: int) -> F32:
    values = tensor.to_f32().reshape(-1).copy()
    if values.size != size or not np.isfinite(values).all():
        raise CheckpointError(
            f"{path} must hold {size} finite numbers for each of mean and std, as many as Whisper's"
            f" d_model, not {values.size}."
        )
    return values
