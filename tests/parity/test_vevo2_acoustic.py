"""Flow matching, vocoder and mel of Vevo2 equal plain torch, librosa and torch.istft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models.vevo2 import acoustic_checkpoint as made
from stapes.graph import Engine
from stapes.models.vevo2.acoustic.config import MelSpec, mel_spec
from stapes.models.vevo2.acoustic.flow_matching import FlowMatching, FlowOptions, initial_noise
from stapes.models.vevo2.acoustic.istft import inverse_stft
from stapes.models.vevo2.acoustic.load import load_flow_matching, load_vocoder
from stapes.models.vevo2.acoustic.mel import normalised_mel

pytestmark = pytest.mark.parity

#: codes, prompt frames: none, fewer and more than the first codes stand for, one frame left.
SHAPES = ((1, 0), (7, 0), (9, 11), (30, 33), (5, 19))
TOLERANCE = 1e-5  # of the largest value


def error(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    assert actual.shape == expected.shape
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> FlowMatching:
    folder = made.write(tmp_path_factory.mktemp("fm"), made.flow_tensors())
    return load_flow_matching(folder, made.flow_config(), Engine(2, "auto"), "f32")


def expected_mel(codes: Any, prompt: Any, options: FlowOptions) -> NDArray[np.float64]:
    from parity import vevo2_acoustic_oracle as oracle

    frames = 4 * len(codes) - len(prompt)
    noise = initial_noise(options.seed, frames, made.MELS)
    weights = oracle.double(made.flow_tensors())
    return oracle.flow_matching(
        *(weights, codes, prompt, noise),
        steps=options.steps,
        layers=made.LAYERS,
        heads=made.HEADS,
        cfg=options.cfg,
        rescale=options.rescale,
    )


@pytest.mark.parametrize(("count", "prompt_frames"), SHAPES)
def test_flow_matching_is_that_of_torch(flow: FlowMatching, count: int, prompt_frames: int):
    codes, prompt = made.random_codes(count), made.random_mel(prompt_frames)
    options = FlowOptions(steps=8, seed=3)
    found = flow.mel(codes, prompt, options)
    assert error(found, expected_mel(codes, prompt, options)) < TOLERANCE


@pytest.mark.parametrize(
    "options",
    [
        FlowOptions(steps=1, seed=1),
        FlowOptions(steps=32, seed=2),
        FlowOptions(steps=5, cfg=0.0),
        FlowOptions(steps=5, cfg=2.5, rescale=0.0),
        FlowOptions(steps=5, cfg=0.3, rescale=1.0),
    ],
    ids=str,
)
def test_every_option_is_that_of_torch(flow: FlowMatching, options: FlowOptions):
    codes, prompt = made.random_codes(12, seed=5), made.random_mel(9, seed=6)
    found = flow.mel(codes, prompt, options)
    assert error(found, expected_mel(codes, prompt, options)) < TOLERANCE


@pytest.mark.parametrize("frames", [1, 2, 3, 40, 97])
def test_the_vocoder_is_that_of_torch(tmp_path: Path, frames: int):
    from parity import vevo2_acoustic_oracle as oracle

    folder = made.write(tmp_path, made.vocoder_tensors())
    vocoder = load_vocoder(folder, made.vocoder_config(), Engine(2, "auto"), "f32")
    mel = made.random_mel(frames)
    weights = oracle.double(made.vocoder_tensors())
    expected = oracle.vocoder(weights, mel, made.BLOCKS, made.HOP)
    assert error(vocoder.samples(mel), expected) < TOLERANCE


def test_the_inverse_transform_is_that_of_torch():
    """torch.istft pads and cuts half a window, ours less: what both give is the same."""
    import torch

    n_fft, hop, frames = 1920, 480, 12
    rng = np.random.default_rng(0)
    spectrum = rng.normal(size=(frames, n_fft // 2 + 1, 2)) @ [1, 1j]
    window = torch.hann_window(n_fft, dtype=torch.float64)
    found = inverse_stft(spectrum, window.numpy(), hop)
    assert found.shape == (frames * hop,)
    stacked = torch.from_numpy(spectrum.T)
    expected = torch.istft(stacked, n_fft, hop, n_fft, window, center=True).numpy()
    assert expected.shape == ((frames - 1) * hop,)
    inside = slice((hop // 2), (hop // 2) + len(expected))
    assert error(found[inside], expected) < 1e-10


@pytest.mark.parametrize("samples", [721, 1919, 24_000, 40_001])
def test_the_mel_is_that_of_librosa(samples: int):
    import librosa

    spec = mel_spec(made.flow_config())
    rng = np.random.default_rng(samples)
    tone = 0.4 * np.sin(2 * np.pi * 440 * np.arange(samples) / 24_000)
    audio = (tone + 0.05 * rng.normal(size=samples)).astype(np.float32)
    padded = np.pad(audio.astype(np.float64), 720, mode="reflect")
    spectrum = librosa.stft(
        padded, n_fft=1920, hop_length=480, win_length=1920, window="hann", center=False
    )
    magnitude = np.sqrt(np.abs(spectrum) ** 2 + 1e-9)
    filters = librosa.filters.mel(sr=24_000, n_fft=1920, n_mels=128, fmin=0, fmax=12_000)
    log = np.log(np.maximum(filters @ magnitude, 1e-5))
    expected = ((log + 4.92) / np.sqrt(8.14)).T
    assert error(normalised_mel(audio, spec), expected) < 1e-5


def test_the_mel_of_silence_is_that_of_librosa():
    """Its floor: the magnitude of nothing is the root of 1e-9."""
    spec: MelSpec = mel_spec(made.flow_config())
    found = normalised_mel(np.zeros(4800, np.float32), spec)
    import librosa

    filters = librosa.filters.mel(sr=24_000, n_fft=1920, n_mels=128, fmin=0, fmax=12_000)
    values = np.maximum(filters.sum(axis=1) * np.sqrt(1e-9), 1e-5)
    expected = np.tile((np.log(values) + 4.92) / np.sqrt(8.14), (10, 1))
    assert error(found, expected) < 1e-5
