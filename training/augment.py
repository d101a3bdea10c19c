"""What happens to clean speech on its way to a microphone and through a line."""

from __future__ import annotations

import numpy as np
import soxr
from numpy.random import Generator

RATE = 16000
FREQS_CACHE: dict[int, np.ndarray] = {}


def fft_size(length: int) -> int:
    """The next length of the form 2^k or 3 * 2^k, which transforms fast."""
    power = 1 << (length - 1).bit_length()
    return power * 3 // 4 if power * 3 // 4 >= length else power


def frequencies(size: int) -> np.ndarray:
    """Bin frequencies in Hz of a real transform of `size`."""
    if size not in FREQS_CACHE:
        FREQS_CACHE[size] = np.fft.rfftfreq(size, 1 / RATE).astype(np.float32)
    return FREQS_CACHE[size]


def equaliser(size: int, rng: Generator) -> np.ndarray:
    """A smooth random gain over frequency: a tilt plus a few broad bumps, in octaves."""
    octaves = np.log2(np.maximum(frequencies(size), 60) / 1000)
    gain_db = rng.normal(0, 2.5) * octaves
    for _ in range(rng.integers(0, 4)):
        centre, width = rng.uniform(-3.5, 3), rng.uniform(0.3, 1.5)
        gain_db += rng.normal(0, 5) * np.exp(-(((octaves - centre) / width) ** 2))
    return 10 ** (gain_db / 20)


def band(size: int, low: float, high: float, slope: float = 24.0) -> np.ndarray:
    """A band pass with so many dB per octave outside of low..high."""
    freqs = np.maximum(frequencies(size), 1)
    below, above = np.log2(low / freqs).clip(0), np.log2(freqs / high).clip(0)
    return 10 ** (-slope * (below + above) / 20)


def band_limit(size: int, rng: Generator) -> np.ndarray:
    """Telephone, wide-band telephone, small loudspeaker, old radio, or nothing."""
    kind = rng.choice(5, p=(0.2, 0.2, 0.1, 0.15, 0.35))
    if kind == 0:
        return band(size, rng.uniform(150, 350), rng.uniform(3200, 3600), 60)
    if kind == 1:
        return band(size, rng.uniform(40, 120), rng.uniform(6500, 7300), 80)
    if kind == 2:
        return band(size, rng.uniform(200, 500), rng.uniform(4000, 8000), 18)
    if kind == 3:
        return band(size, rng.uniform(50, 200), rng.uniform(3000, 7000), 36)
    return np.ones(size // 2 + 1, np.float32)


def room(rng: Generator) -> np.ndarray:
    """A synthetic room response: direct sound, early reflections and a decaying tail."""
    decay = rng.uniform(0.05, 0.6)
    length = int(RATE * decay * 0.8) + 400
    time = np.arange(length) / RATE
    tail = rng.standard_normal(length) * 10 ** (-3 * time / decay)
    tail[: int(rng.uniform(0.002, 0.02) * RATE)] = 0
    tail *= 10 ** (rng.uniform(-18, 2) / 20) / np.sqrt((tail**2).sum() + 1e-9)
    for _ in range(rng.integers(0, 7)):
        tail[rng.integers(16, 400)] += rng.normal(0, 0.25)
    tail[0] += 1.0
    return tail.astype(np.float32)


def coloured(length: int, slope: float, rng: Generator) -> np.ndarray:
    """Noise whose power falls by `slope` (0 white, 1 pink, 2 brown) with frequency."""
    size = fft_size(length)
    spectrum = np.fft.rfft(rng.standard_normal(size).astype(np.float32))
    spectrum *= np.maximum(frequencies(size), 30) ** (-slope / 2)
    return np.fft.irfft(spectrum, size)[:length]


def hum(length: int, rng: Generator) -> np.ndarray:
    """Mains hum with harmonics."""
    time, base = np.arange(length) / RATE, rng.choice((50.0, 60.0))
    levels = [(k, rng.exponential(1 / k), rng.uniform(0, 6.28)) for k in range(1, 9)]
    return sum(a * np.sin(2 * np.pi * base * k * time + phase) for k, a, phase in levels)


def clicks(length: int, rng: Generator) -> np.ndarray:
    """Short bursts, as of keys and contacts, over a faint hiss."""
    out = rng.standard_normal(length) * 0.01
    for _ in range(rng.integers(1, 2 + length // 4000)):
        size = int(rng.integers(30, 600))
        burst = rng.standard_normal(size) * np.exp(-np.arange(size) / (size / 5))
        start = int(rng.integers(0, max(1, length - size)))
        out[start : start + size] += (rng.uniform(0.1, 1) * burst)[: length - start]
    return out


def babble(length: int, talkers: list[np.ndarray], rng: Generator) -> np.ndarray:
    """Several talkers at once, played backwards so that no word can be understood."""
    out = np.zeros(length, np.float32)
    for talker in talkers:
        backwards = np.resize(talker[::-1], length)
        out += np.roll(backwards, rng.integers(length)) * rng.uniform(0.3, 1)
    return out


def noise(length: int, talkers: list[np.ndarray], rng: Generator) -> np.ndarray:
    """One kind of background at unit power."""
    kind = rng.choice(4, p=(0.6, 0.1, 0.12, 0.18))
    if kind == 0:
        out = coloured(length, rng.uniform(0, 2.2), rng)
        if rng.random() < 0.4:
            swell = np.interp(np.arange(length), np.linspace(0, length, 8), rng.uniform(0.2, 1, 8))
            out = out * swell
    elif kind == 1:
        out = hum(length, rng) + 0.1 * rng.standard_normal(length)
    elif kind == 2:
        out = clicks(length, rng)
    else:
        out = babble(length, talkers, rng)
    return (out / np.sqrt((out**2).mean() + 1e-12)).astype(np.float32)


def mu_law(samples: np.ndarray) -> np.ndarray:
    """Through an 8 kHz mu-law line and back."""
    narrow = soxr.resample(samples, RATE, 8000, quality="LQ").clip(-1, 1)
    code = np.round(127 * np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log(256))
    decoded = np.sign(code) * (256 ** (np.abs(code) / 127) - 1) / 255
    out = soxr.resample(decoded.astype(np.float32), 8000, RATE, quality="LQ")
    return np.resize(out, len(samples)) if len(out) < len(samples) else out[: len(samples)]


def change_speed(samples: np.ndarray, factor: float) -> np.ndarray:
    """Resample: pitch and formants rise and the duration falls by `factor`."""
    return soxr.resample(samples, RATE * factor, RATE, quality="LQ")


def filter_all(speech: np.ndarray, rng: Generator) -> np.ndarray:
    """Room, equaliser and band limit in one pass through the frequency domain."""
    response = room(rng) if rng.random() < 0.5 else np.ones(1, np.float32)
    size = fft_size(len(speech) + len(response))
    spectrum = np.fft.rfft(speech, size) * np.fft.rfft(response, size)
    if rng.random() < 0.8:
        spectrum *= equaliser(size, rng)
    return np.fft.irfft(spectrum * band_limit(size, rng), size)[: len(speech)]


def distort(samples: np.ndarray, rng: Generator) -> np.ndarray:
    """Sometimes an overdriven input or a mu-law line."""
    peak = np.abs(samples).max() + 1e-9
    kind = rng.random()
    if kind < 0.05:
        return np.clip(samples / peak * rng.uniform(1.2, 4), -1, 1)
    if kind < 0.1:
        return np.tanh(samples / peak * rng.uniform(1, 4))
    if kind < 0.25:
        return mu_law(samples / peak * rng.uniform(0.1, 1))
    return samples


def degrade(speech: np.ndarray, talkers: list[np.ndarray], rng: Generator) -> np.ndarray:
    """The whole way: filters, background, distortion, level, 16-bit rounding."""
    out = filter_all(speech, rng) if rng.random() < 0.9 else speech
    if rng.random() < 0.65:
        loud = out[np.abs(out) > 0.1 * np.abs(out).max()]
        level = np.sqrt((loud**2).mean() + 1e-12) * 10 ** (-rng.uniform(5, 45) / 20)
        out = out + level * noise(len(out), talkers, rng)
    out = distort(out, rng)
    out = out / (np.abs(out).max() + 1e-9) * 10 ** (-rng.exponential(7) / 20)
    return (np.round(out * 32767) / 32768).astype(np.float32)
