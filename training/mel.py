"""The log-mel of Qwen3-ASR: Whisper's, without truncation, last frame dropped."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers.audio_utils import mel_filter_bank

FILTERS = torch.from_numpy(
    mel_filter_bank(
        num_frequency_bins=201,
        num_mel_filters=128,
        min_frequency=0.0,
        max_frequency=8000.0,
        sampling_rate=16000,
        norm="slaney",
        mel_scale="slaney",
    ).T.astype(np.float32)
)
WINDOW = torch.hann_window(400)


def log_mel(samples: np.ndarray) -> Tensor:
    """f32 samples at 16 kHz -> [128, samples // 160]; at least half a second by zero padding."""
    wave = torch.from_numpy(samples.astype(np.float32))
    wave = torch.nn.functional.pad(wave, (0, max(0, 8000 - len(wave))))
    spectrum = torch.stft(wave, 400, 160, window=WINDOW, return_complex=True)
    power = spectrum[:, :-1].abs() ** 2
    log_spec = (FILTERS @ power).clamp(min=1e-10).log10()
    return (torch.maximum(log_spec, log_spec.max() - 8.0) + 4.0) / 4.0
