"""Sounds that change along the way and with their seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE = 16_000


def babble(samples: int, seed: int = 0) -> NDArray[np.float32]:
    """A gliding tone over noise, both swelling and fading: every stretch has another spectrum."""
    rng = np.random.default_rng(seed)
    times = np.arange(samples) / RATE
    knots = np.arange(0, samples / RATE + 0.2, 0.1)
    pitch = np.interp(times, knots, rng.uniform(100, 4000, knots.size))
    level = np.interp(times, knots, rng.uniform(0, 1, knots.size) ** 3)
    tone = 0.3 * np.sin(2 * np.pi * np.cumsum(pitch) / RATE)
    return (level * (tone + rng.normal(0, 0.01, samples))).astype(np.float32)


def noise(samples: int, seed: int = 0, level: float = 0.1) -> NDArray[np.float32]:
    """White noise."""
    return (np.random.default_rng(seed).standard_normal(samples) * level).astype(np.float32)
