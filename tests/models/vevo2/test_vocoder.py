"""The vocoder and its inverse transform: any cut into blocks is the whole, bit for bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.vevo2 import acoustic_checkpoint as made
from stapes.errors import CheckpointError, ConfigError, NumericError, RequestError
from stapes.graph import Engine, NativeExecutor, ReferenceExecutor
from stapes.models.vevo2.acoustic import vocoder_weights
from stapes.models.vevo2.acoustic.config import vocoder_spec
from stapes.models.vevo2.acoustic.istft import inverse_stft
from stapes.models.vevo2.acoustic.load import load_vocoder
from stapes.models.vevo2.acoustic.vocoder import Vocoder
from stapes.tensors import open_safetensors
from stapes.weights import CheckpointReader, MatrixPacker
from stapes.weights.packed_file import Contents, PackedReader, open_packed, write_packed
from stapes.weights.reader import Record, RecordingReader


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.write(tmp_path_factory.mktemp("vocoder"), made.vocoder_tensors())


def load(folder: Path, weights: str = "f32", threads: int = 2) -> Vocoder:
    return load_vocoder(folder, made.vocoder_config(), Engine(threads, "auto"), weights)


@pytest.fixture(scope="module")
def vocoder(folder: Path) -> Vocoder:
    return load(folder)


@pytest.mark.parametrize("frames", [1, 2, 5, 60])
def test_a_frame_is_a_hop_of_samples(vocoder: Vocoder, frames: int):
    samples = vocoder.samples(made.random_mel(frames))
    assert samples.shape == (frames * made.HOP,)
    assert samples.dtype == np.float32
    assert samples.std() > 0.01


@pytest.mark.parametrize("weights", ["f32", "bf16", "q8"])
@pytest.mark.parametrize("block", [1, 7, 40, 99, 1000])
def test_blocks_of_any_size_are_the_whole(folder: Path, weights: str, block: int):
    mel, vocoder = made.random_mel(100), load(folder, weights)
    whole = vocoder.samples(mel)
    blocks = list(vocoder.blocks(mel, block))
    assert [len(samples) for samples in blocks[:-1]] == [block * made.HOP] * (len(blocks) - 1)
    assert np.concatenate(blocks).tobytes() == whole.tobytes()


def test_the_reach_is_not_too_far(vocoder: Vocoder):
    """15 frames of convolutions and 2 of windows: as far as a change shows, and no farther."""
    mel = made.random_mel(80)
    changed = mel.copy()
    changed[40] += 1
    differs = vocoder.samples(mel) != vocoder.samples(changed)
    reached = np.flatnonzero(differs.reshape(80, made.HOP).any(axis=1)).tolist()
    assert reached[0] == 40 - vocoder.reach
    assert reached[-1] == 40 + vocoder.reach
    assert vocoder.reach == 3 * (made.BLOCKS + 1) + 2


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads_gives_the_same_bits(folder: Path, vocoder: Vocoder, threads: int):
    mel = made.random_mel(50)
    assert load(folder, threads=threads).samples(mel).tobytes() == vocoder.samples(mel).tobytes()


def test_the_reference_executor_makes_the_same_samples(folder: Path, vocoder: Vocoder):
    spec = vocoder_spec(made.vocoder_config())
    with open_safetensors(folder) as store:
        reader = CheckpointReader(store, MatrixPacker(Engine(1, "auto"), "f32"))
        weights = vocoder_weights.read_vocoder_weights(reader, spec)
    mel = made.random_mel(30)
    expected = Vocoder(spec, weights, ReferenceExecutor).samples(mel)
    assert np.abs(vocoder.samples(mel) - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("weights", "most"), [("bf16", 0.02), ("q8", 0.05)])
def test_smaller_weights_stay_near(folder: Path, vocoder: Vocoder, weights: str, most: float):
    mel = made.random_mel(60)
    exact, found = vocoder.samples(mel), load(folder, weights).samples(mel)
    error = np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean())
    assert 0 < error < most


def test_weights_that_are_stored_as_f16_are_scaled_by_gamma_too(tmp_path: Path):
    """gamma is multiplied into a matrix when it is read, whatever its words are."""
    tensors = made.vocoder_tensors()
    name = "backbone.convnext.0.pwconv2.weight"
    tensors[name] = tensors[name].astype(np.float16).astype(np.float32)
    exact = load(made.write(tmp_path / "f32", tensors)).samples(made.random_mel(20))
    half: dict[str, Any] = tensors | {name: tensors[name].astype(np.float16)}
    assert (
        load(made.write(tmp_path / "f16", half)).samples(made.random_mel(20)).tobytes()
        == exact.tobytes()
    )


def test_the_largest_magnitude_is_100(tmp_path: Path):
    tensors = made.vocoder_tensors()
    bins = made.N_FFT // 2 + 1
    tensors["head.out.weight"][:] = 0
    tensors["head.out.bias"][:bins] = 50.0  # e^50 if it were not limited
    phases = np.random.default_rng(0).uniform(-3, 3, bins).astype(np.float32)
    tensors["head.out.bias"][bins:] = phases
    samples = load(made.write(tmp_path, tensors)).samples(made.random_mel(12))
    window = tensors["head.istft.window"].astype(np.float64)
    spectrum = np.tile(100 * np.exp(1j * phases.astype(np.float64)), (12, 1))
    expected = inverse_stft(spectrum, window, made.HOP)
    assert np.abs(expected).max() > 10
    np.testing.assert_allclose(samples, expected, atol=1e-4)


# -- the inverse transform -------------------------------------------------------------------------


def test_a_signal_comes_back_from_its_transform():
    hop, n_fft, frames = 24, 96, 30
    margin = (n_fft - hop) // 2
    signal = np.random.default_rng(0).normal(size=frames * hop)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    padded = np.pad(signal, margin)
    pieces = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[::hop]
    found = inverse_stft(np.fft.rfft(pieces * window), window, hop)
    np.testing.assert_allclose(found, signal, atol=1e-12)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, made.MELS), (4, made.MELS + 1), (made.MELS,), (1, 4, 20)])
def test_mels_of_another_shape_are_refused(vocoder: Vocoder, shape: tuple[int, ...]):
    with pytest.raises(RequestError, match="reads a mel"):
        vocoder.samples(np.zeros(shape, np.float32))


def test_blocks_of_no_frames_are_refused(vocoder: Vocoder):
    with pytest.raises(RequestError, match="1 frame or more, not 0"):
        next(vocoder.blocks(made.random_mel(3), 0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_mel_that_is_not_finite_is_an_error(vocoder: Vocoder, bad: float):
    mel = made.random_mel(9)
    mel[4, 4] = bad
    with pytest.raises(NumericError, match="not finite"):
        vocoder.samples(mel)


@pytest.mark.parametrize(
    "change",
    [
        {"padding": "center"},
        {"hop_size": 50},
        {"hop_size": 96},
        {"dim": 0},
        {"num_layers": None},
    ],
    ids=str,
)
def test_configurations_that_are_not_known_are_refused(change: dict[str, Any]):
    with pytest.raises(ConfigError, match=next(iter(change))):
        vocoder_spec(made.vocoder_config(**change))


def test_a_window_that_is_missing_is_named(tmp_path: Path):
    tensors = made.vocoder_tensors()
    del tensors["head.istft.window"]
    with pytest.raises(CheckpointError, match=r"1 missing: head\.istft\.window"):
        load(made.write(tmp_path, tensors))


def test_discriminators_beside_the_vocoder_are_left_alone(tmp_path: Path):
    made.write(tmp_path, made.vocoder_tensors())
    for name in ("model_1.safetensors", "model_2.safetensors"):
        (tmp_path / name).write_bytes(b"not read")
    assert load(tmp_path).samples(made.random_mel(2)).size == 2 * made.HOP


def test_the_published_sizes_are_255_million():
    published = {"dim": 1024, "intermediate_dim": 4096, "num_layers": 30, "n_fft": 1920}
    config = made.vocoder_config(**published, input_channels=128, hop_size=480)
    shapes = vocoder_weights.expected_tensors(vocoder_spec(config))
    total = sum(int(np.prod(shape)) for shape in shapes.values())
    assert total == pytest.approx(255e6, rel=1e-3)


@pytest.mark.parametrize("weights", ["f32", "q8"])
def test_a_converted_file_makes_the_same_samples(folder: Path, tmp_path: Path, weights: str):
    """What is recorded while a checkpoint is read answers the same calls later."""
    spec, record, engine = vocoder_spec(made.vocoder_config()), Record(), Engine(2, "auto")
    with open_safetensors(folder) as store:
        reader = CheckpointReader(store, MatrixPacker(engine, weights))
        vocoder_weights.read_vocoder_weights(RecordingReader(reader, record), spec)
    write_packed(tmp_path / "vocoder.stapes", Contents(record.matrices, record.vectors))
    file = open_packed(tmp_path / "vocoder.stapes")
    assert file is not None
    packed = PackedReader(file, vocoder_weights.expected_tensors(spec))
    read = vocoder_weights.read_vocoder_weights(packed, spec)
    mel = made.random_mel(12)
    samples = Vocoder(spec, read, partial(NativeExecutor, engine=engine)).samples(mel)
    assert samples.tobytes() == load(folder, weights).samples(mel).tobytes()
