"""Cheap variation of log-mels while training: gain over frequency, warping, masking."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from training.dataset import Batch

FLOOR = 2.0  # the mel's floor lies 8 decades, i.e. 2.0 after scaling, below the clip's maximum


def gain_curves(count: int, rng: Generator) -> Tensor:
    """[count, 128, 1] smooth gains over frequency, in units of the scaled log-mel (1.0 = 40 dB)."""
    knots = rng.normal(0, 0.07, (count, 6)) * (rng.random((count, 1)) < 0.5)
    at = np.linspace(0, 5, 128)
    curves = np.stack([np.interp(at, np.arange(6), row) for row in knots])
    return torch.from_numpy(curves.astype(np.float32)).unsqueeze(-1)


def warp_frequency(mel: Tensor, rng: Generator) -> Tensor:
    """Stretch the mel axis of every clip by up to 6%: another length of vocal tract."""
    factors = 1 + rng.normal(0, 0.03, mel.shape[0]).clip(-0.07, 0.07) * (
        rng.random(mel.shape[0]) < 0.5
    )
    position = torch.from_numpy(np.arange(128)[None] * factors[:, None]).clamp(0, 127).float()
    low = position.floor().long().clamp(max=126)
    share = (position - low).unsqueeze(-1)
    index = low.unsqueeze(-1).expand(-1, -1, mel.shape[2])
    return torch.gather(mel, 1, index) * (1 - share) + torch.gather(mel, 1, index + 1) * share


def mask(mel: Tensor, frames: Tensor, rng: Generator) -> None:
    """Set a few bands and a few short moments of each clip to its floor, in place."""
    for row, length in enumerate(frames.tolist()):
        floor = mel[row, :, :length].amin()
        for _ in range(rng.integers(0, 3)):
            width = int(rng.integers(1, 16))
            start = int(rng.integers(0, 128 - width))
            mel[row, start : start + width, :length] = floor
        for _ in range(rng.integers(0, 2 + length // 150)):
            width = int(rng.integers(1, 9))
            start = int(rng.integers(0, max(1, length - width)))
            mel[row, :, start : min(length, start + width)] = floor


def vary(batch: Batch, rng: Generator) -> Batch:
    """A varied copy of the batch; padding stays zero, the floor rule is applied again."""
    valid = (torch.arange(batch.mel.shape[2]) < batch.frames[:, None]).unsqueeze(1)
    mel = warp_frequency(batch.mel, rng) + gain_curves(len(batch.words), rng)
    peak = mel.masked_fill(~valid, -9.0).amax((1, 2), keepdim=True)
    mel = torch.maximum(mel, peak - FLOOR)
    mask(mel, batch.frames, rng)
    return replace(batch, mel=mel * valid)
