"""Vevo2's input side against independent oracles: torch, transformers and librosa as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("librosa")

import torch

from models.vevo2.tokenizer_checkpoint import (
    CONTENT_STYLE,
    PROSODY,
    CocoSizes,
    coco_tensors,
    load_all,
    melody,
    statistics,
    whisper_config,
    whisper_tensors,
    write_coco,
    write_whisper,
)
from parity.vevo2_input_oracle import coco
from stapes.graph import Engine
from stapes.models.vevo2.tokenizers.chroma import chromagram, stretched
from stapes.models.vevo2.tokenizers.coco import CocoEncoder
from stapes.models.vevo2.tokenizers.load import TokenizerLoader, Tokenizers
from stapes.models.vevo2.tokenizers.statistics import read_statistics
from stapes.models.vevo2.tokenizers.tokenizer import VoiceFeatures
from stapes.models.vevo2.voice import Voice
from stapes.tensors.torch_file import TorchFile

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning"),
]

TOLERANCE = 1e-4


def relative(found: Any, expected: Any) -> float:
    """Largest difference, in units of the oracle's root mean square."""
    expected = np.asarray(expected)
    return float(np.abs(found - expected).max() / np.sqrt((expected**2).mean()))


def random_rows(rows: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


def as_torch(tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: torch.from_numpy(tensor) for name, tensor in tensors.items()}


# -- Coco ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [1, 2, 3, 5, 8, 13, 27, 100, 501, 1625])
@pytest.mark.parametrize("sizes", [CONTENT_STYLE, PROSODY], ids=["content_style", "prosody"])
def test_codes_are_those_of_torch(tmp_path: Path, sizes: CocoSizes, frames: int):
    tensors = coco_tensors(sizes, seed=frames)
    encoder = load(write_coco(tmp_path / "x", tensors), sizes)
    chroma = np.abs(random_rows(frames, 24))
    whisper = random_rows(frames, sizes.whisper, 1) if sizes.whisper else None
    inputs = [torch.from_numpy(x) for x in (chroma, whisper) if x is not None]
    with torch.no_grad():
        expected, rows = coco(as_torch(tensors), *inputs)
    codes, projected = encoder.encode(chroma, whisper)
    assert relative(projected, rows.numpy()) < TOLERANCE
    assert np.array_equal(codes, expected.numpy())


def load(folder: Path, sizes: CocoSizes) -> CocoEncoder:
    return TokenizerLoader(Engine(2))._coco(folder)


def test_published_sizes(tmp_path: Path):
    """One tokenizer at full size: 16384 codes, 1024 wide, 12 blocks."""
    sizes = CocoSizes(1024, 2, 16384, hidden=1024, vocos=384, wide=2048, blocks=12)
    tensors = coco_tensors(sizes)
    encoder = load(write_coco(tmp_path / "x", tensors), sizes)
    chroma, whisper = np.abs(random_rows(203, 24)), random_rows(203, 1024, 1)
    with torch.no_grad():
        expected, rows = coco(
            as_torch(tensors), torch.from_numpy(chroma), torch.from_numpy(whisper)
        )
    codes, projected = encoder.encode(chroma, whisper)
    assert relative(projected, rows.numpy()) < TOLERANCE
    assert np.array_equal(codes, expected.numpy())
    assert len(set(codes.tolist())) > 30


# -- Whisper ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whisper_oracle() -> Any:
    """transformers' encoder, which takes our tensors under its own names."""
    transformers = pytest.importorskip("transformers")
    config = transformers.WhisperConfig(**whisper_config())
    encoder = transformers.models.whisper.modeling_whisper.WhisperEncoder(config).eval()
    state = {k.removeprefix("encoder."): v for k, v in as_torch(whisper_tensors()).items()}
    encoder.load_state_dict(state)
    extractor = transformers.WhisperFeatureExtractor(feature_size=80)

    def features(samples: np.ndarray) -> np.ndarray:
        mel = extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features
        with torch.no_grad():
            return encoder(mel).last_hidden_state[0].numpy()

    return features


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    return load_all(tmp_path_factory.mktemp("vevo2"))


@pytest.mark.parametrize("seconds", [0.02, 0.5, 7.3, 29.99, 30.0, 34.0])
def test_whisper_features_are_those_of_transformers(tokenizers, whisper_oracle, seconds):
    samples = melody(seconds, rate=16_000)
    found = tokenizers.content_style.whisper.encoder.features(samples)
    assert relative(found, whisper_oracle(samples)) < TOLERANCE


def test_whisper_in_float16_as_openai_stores_it(tmp_path: Path, whisper_oracle):
    halves = {k: v.astype(np.float16) for k, v in whisper_tensors().items()}
    folder = write_whisper(tmp_path / "w", halves, whisper_config())
    torch.save({"mean": torch.zeros(32), "std": torch.ones(32)}, tmp_path / "stats.pt")
    whisper = TokenizerLoader(Engine(2)).whisper(folder, tmp_path / "stats.pt")
    samples = melody(2.0, rate=16_000)
    assert relative(whisper.encoder.features(samples), whisper_oracle(samples)) < 0.02


# -- from a recording to codes ---------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.6, 5.0, 31.0])
def test_a_recording_has_the_codes_of_the_oracles(tokenizers, whisper_oracle, seconds):
    voice = Voice("a melody", melody(seconds))
    features = VoiceFeatures(voice)
    whisper = whisper_oracle(voice.samples_16k)[: voice.frames]
    whisper = np.pad(whisper, ((0, voice.frames - len(whisper)), (0, 0)), mode="edge")
    stats = statistics()
    whisper = (whisper - stats["mean"]) / stats["std"]
    chroma = librosa_chroma(voice.samples)[: voice.frames]
    with torch.no_grad():
        content_style, _ = coco(
            as_torch(coco_tensors(CONTENT_STYLE, 1)),
            torch.from_numpy(chroma),
            torch.from_numpy(whisper.astype(np.float32)),
        )
        prosody, _ = coco(as_torch(coco_tensors(PROSODY, 2)), torch.from_numpy(chroma))
    assert np.array_equal(tokenizers.content_style.codes(features), content_style.numpy())
    assert np.array_equal(tokenizers.prosody.codes(features), prosody.numpy())


# -- chroma ----------------------------------------------------------------------------------------


def librosa_chroma(samples: np.ndarray) -> np.ndarray:
    from librosa.feature import chroma_stft

    return chroma_stft(
        y=samples, sr=24_000, n_fft=1920, hop_length=480, win_length=1920, n_chroma=24
    ).T


SIGNALS = {
    "melody": melody(2.3),
    "detuned": melody(2.3) * np.sin(np.arange(int(2.3 * 24_000)) * 1e-3, dtype=np.float32),
    "noise": np.random.default_rng(0).uniform(-1, 1, 20_001).astype(np.float32),
    "one window": melody(0.08)[:1920],
    "rising": np.sin(2e-6 * np.arange(48_000.0) ** 2).astype(np.float32),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_chroma_is_that_of_one_call_to_librosa(name):
    samples = SIGNALS[name]
    frames = samples.size // 480
    assert np.array_equal(chromagram(samples, frames), librosa_chroma(samples)[:frames])


@pytest.mark.parametrize("count", [480, 700, 1919])
def test_chroma_of_less_than_a_window(count):
    samples = melody(0.1)[:count]
    with pytest.warns(UserWarning, match="n_fft=1920 is too large"):
        expected = librosa_chroma(samples)[: count // 480]
    assert np.allclose(chromagram(samples, count // 480), expected, atol=1e-5)


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.99, 1.0, 1.3, 2.0, 7.77])
@pytest.mark.parametrize("frames", [7, 50, 333])
def test_stretching_is_interpolation(frames, ratio):
    chroma = random_rows(frames, 24)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(chroma.T).unsqueeze(0),
        size=int(frames * ratio),
        mode="linear",
        align_corners=False,
    )
    assert relative(stretched(chroma, ratio), expected[0].numpy().T) < TOLERANCE


# -- files of torch.save ---------------------------------------------------------------------------


def test_statistics_that_torch_saved(tmp_path: Path):
    values = {"mean": torch.randn(1024), "std": torch.rand(1024) + 0.5}
    torch.save(values, tmp_path / "whisper_stats.pt")
    read = read_statistics(tmp_path / "whisper_stats.pt", 1024)
    assert np.array_equal(read.mean, values["mean"].numpy())
    assert np.array_equal(read.std, values["std"].numpy())


def test_a_state_dict_with_views_and_parameters(tmp_path: Path):
    base = torch.randn(4, 6)
    state = torch.nn.Linear(3, 2).state_dict()
    state |= {"t": base.t(), "part": base[1:3, 2:], "b": base.bfloat16(), "s": torch.tensor(3.0)}
    state |= {"p": torch.nn.Parameter(base), "none": torch.zeros(0, 3), "d": base.double()}
    torch.save({"dims": {"n_mels": 80}, "model_state_dict": state}, tmp_path / "x.pt")
    with TorchFile(tmp_path / "x.pt") as file:
        assert file.root["dims"] == {"n_mels": 80}
        for name, tensor in state.items():
            found = file[f"model_state_dict.{name}"].to_f32()
            assert np.array_equal(found, tensor.detach().float().numpy()), name
