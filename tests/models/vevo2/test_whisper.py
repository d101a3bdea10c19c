"""Whisper's encoder: its layouts, its input of 30 s, its statistics, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from models.vevo2.tokenizer_checkpoint import (
    WHISPER,
    melody,
    openai_dims,
    openai_name,
    statistics,
    whisper_config,
    whisper_tensors,
    write_whisper,
)
from stapes.errors import CheckpointError, ConfigError, ModelError, NumericError, TensorFileError
from stapes.graph import Engine, ReferenceExecutor
from stapes.models.vevo2.tokenizers.load import TokenizerLoader
from stapes.models.vevo2.tokenizers.statistics import read_statistics
from stapes.models.vevo2.tokenizers.whisper import WhisperEncoder
from stapes.models.vevo2.tokenizers.whisper_files import open_whisper
from stapes.models.vevo2.tokenizers.whisper_weights import read_whisper
from stapes.weights import CheckpointReader, MatrixPacker
from tensors.torch_archive import mapping, number, write_tensors

SAMPLES = melody(3.0, rate=16_000)


def encoder(path: Path, make_executor=None) -> WhisperEncoder:
    if make_executor is None:
        return TokenizerLoader(Engine(2)).whisper(path, write_statistics(path.parent)).encoder
    with open_whisper(path) as file:
        reader = CheckpointReader(file.store, MatrixPacker(Engine(1), "f32"))
        weights = read_whisper(reader, file.spec, file.names)
        return WhisperEncoder(file.spec, weights, make_executor)


def write_statistics(folder: Path) -> Path:
    save_file(statistics(), folder / "stats.safetensors")
    return folder / "stats.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whisper(tmp_path_factory.mktemp("w") / "hf", whisper_tensors(), whisper_config())


@pytest.fixture(scope="module")
def whisper(folder: Path) -> WhisperEncoder:
    return encoder(folder)


@pytest.fixture(scope="module")
def features(whisper: WhisperEncoder) -> np.ndarray:
    return whisper.features(SAMPLES)


def test_half_a_minute_in_1500_rows(whisper, features):
    assert (features.shape, features.dtype) == ((1500, WHISPER.width), np.float32)
    assert np.array_equal(features, whisper.features(np.pad(SAMPLES, (0, 16_000))))
    long = np.pad(SAMPLES, (0, 480_000))
    assert np.array_equal(whisper.mel(long), whisper.mel(SAMPLES))
    assert whisper.mel(SAMPLES[:1]).shape == (3000, 80)


def test_every_position_sees_every_other(whisper, features):
    changed = SAMPLES.copy()
    changed[-8000:] *= 2
    assert (whisper.features(changed) != features).any(axis=1).all()


def test_the_plan_is_that_of_the_reference(folder, whisper):
    """Attention over 1500 rows in NumPy is slow, so the reference gets a tenth of them."""
    short = encoder(folder, ReferenceExecutor)
    spec = type(short.spec)(**{**vars(short.spec), "max_source_positions": 150})
    mel = whisper.mel(SAMPLES)[:300]
    short.spec = whisper_spec = spec
    native = encoder(folder)
    native.spec = whisper_spec
    assert np.allclose(native.encode(mel), short.encode(mel), rtol=1e-4, atol=1e-5)


def layouts(folder: Path) -> list[Path]:
    """The same encoder in every published form."""
    plain = whisper_tensors()
    openai = {openai_name(name): tensor for name, tensor in plain.items()}
    headed = {f"model.{name}": tensor for name, tensor in plain.items()}
    headed["model.decoder.layer_norm.weight"] = np.zeros(3, np.float32)
    dims = openai_dims()
    pickled = {"dims": mapping({name: number(size) for name, size in dims.items()})}
    openai_folder = folder / "pickled"
    openai_folder.mkdir()
    rest = {"decoder.ln.weight": np.zeros(3, np.float32)}
    return [
        write_whisper(folder / "headed", headed, whisper_config()),
        write_whisper(folder / "openai", openai | rest, {"audio_encoder": dims}),
        write_tensors(openai_folder / "medium.pt", openai | rest, pickled),
        openai_folder,
        folder / "headed" / "model.safetensors",
    ]


def test_every_layout_gives_the_same_bits(tmp_path, features):
    for path in layouts(tmp_path):
        assert np.array_equal(encoder(path).features(SAMPLES), features), path


def test_what_cannot_be_a_whisper_encoder(tmp_path):
    config, tensors = whisper_config(), whisper_tensors()
    renamed = {name.replace("encoder", "tower"): x for name, x in tensors.items()}
    missing = {name: x for name, x in tensors.items() if "layers.1.fc2.bias" not in name}
    surplus = tensors | {"encoder.layers.2.fc1.bias": np.zeros(3, np.float32)}
    wrong: list[tuple[str, dict, dict, type[ModelError], str]] = [
        ("renamed", renamed, config, CheckpointError, "holds no Whisper encoder"),
        ("missing", missing, config, CheckpointError, r"1 missing: encoder.layers.1.fc2.bias"),
        ("surplus", surplus, config, CheckpointError, "1 unexpected"),
        ("wide", tensors, config | {"d_model": 36}, CheckpointError, "mis-shaped"),
        ("heads", tensors, config | {"encoder_attention_heads": 5}, ConfigError, "5 heads"),
        ("relu", tensors, config | {"activation_function": "relu"}, ConfigError, "'relu'"),
        ("zero", tensors, config | {"encoder_layers": 0}, ConfigError, "'encoder_layers': 0"),
        ("none", tensors, {}, ConfigError, "has no num_mel_bins"),
    ]
    for name, given, values, kind, reason in wrong:
        path = write_whisper(tmp_path / name, given, values)
        with pytest.raises(kind, match=reason), open_whisper(path):
            pass
    with pytest.raises(TensorFileError, match="published as openai/whisper-medium"):
        encoder(tmp_path / "nowhere")
    bare = write_tensors(tmp_path / "bare.pt", {"a": np.zeros(3, np.float32)})
    with pytest.raises(ConfigError, match=r"bare.pt has no dimensions \(dims\)"):
        encoder(bare)


def test_infinite_weights_are_an_error_of_the_model(tmp_path):
    tensors = whisper_tensors()
    tensors["encoder.conv2.bias"] = np.full(WHISPER.width, 3e38, np.float32)
    broken = encoder(write_whisper(tmp_path / "big", tensors, whisper_config()))
    with pytest.raises(NumericError, match="not finite"):
        broken.features(SAMPLES)


# -- statistics ------------------------------------------------------------------------------------


def test_statistics_from_both_kinds_of_file(tmp_path):
    values = statistics()
    pickled = write_tensors(tmp_path / "whisper_stats.pt", values)
    read = [read_statistics(path, 32) for path in (pickled, write_statistics(tmp_path))]
    assert all(np.array_equal(found.mean, values["mean"]) for found in read)
    assert all(np.array_equal(found.std, values["std"]) for found in read)
    rows = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32)
    expected = (rows.astype(np.float64) - values["mean"]) / values["std"]
    assert np.allclose(read[0].normalised(rows), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"std": np.zeros(32, np.float32)}, "standard deviation of 0"),
        ({"mean": np.zeros(31, np.float32)}, "must hold 32 finite numbers .* not 31"),
        ({"mean": np.full(32, np.nan, np.float32)}, "must hold 32 finite numbers"),
    ],
)
def test_statistics_that_do_not_fit(tmp_path, change, reason):
    path = write_tensors(tmp_path / "whisper_stats.pt", statistics() | change)
    with pytest.raises(CheckpointError, match=reason):
        read_statistics(path, 32)


def test_statistics_that_are_missing(tmp_path):
    with pytest.raises(TensorFileError, match=r"whisper_stats\.pt cannot be read"):
        read_statistics(tmp_path / "whisper_stats.pt", 32)
    path = write_tensors(tmp_path / "half.pt", {"mean": np.zeros(32, np.float32)})
    with pytest.raises(CheckpointError, match="no tensor 'std'"):
        read_statistics(path, 32)
