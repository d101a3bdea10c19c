"""Audio8-ASR: its layout, its adapter, its prompt, and the way from sound to text."""

from __future__ import annotations

import json
import math
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stapes
from checkpoints import Tensors, write_safetensors
from models.audio8_checkpoint import (
    CONTROL,
    END,
    PUBLISHED,
    Sizes,
    config,
    random_tensors,
    shapes,
    write_checkpoint,
)
from models.rigged import rig
from sounds import babble
from stapes.audio import log_mel
from stapes.decoder import GenerateOptions, generate
from stapes.errors import CheckpointError, ConfigError, ModelError, RequestError
from stapes.models.convert import convert
from stapes.models.description import describe
from stapes.models.qwen3_asr.audio8 import Audio8Asr
from stapes.models.qwen3_asr.audio8.adapter import stretch_means
from stapes.models.qwen3_asr.audio8.config import AdapterSpec, read_config
from stapes.options import RuntimeOptions
from stapes.text.tokenizer import load_tokenizer

# As the publisher's processor counts them, by published tests of other readers of this model.
COUNTS = {1: 1, 6: 1, 7: 1, 31: 4, 32: 4, 400: 50, 595: 74, 1407: 176, 3000: 375}


def load(path: Path, **options: Any) -> Audio8Asr:
    chosen = {"weights": "f32", "kv": "f32", "threads": 1, **options}
    model = stapes.load(path, **chosen)
    assert isinstance(model, Audio8Asr)
    return model


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("audio8"))


@pytest.fixture(scope="session")
def model(pristine: Path) -> Audio8Asr:
    return load(pristine)


# -- sizes and names -----------------------------------------------------------------------------


def test_the_published_sizes_give_the_published_numbers_of_parameters(tmp_path: Path):
    """103,502,336 of the language model and 323,990,528 in all, says the model card."""
    count = {name: prod(shape) for name, shape in shapes(PUBLISHED).items()}
    decoder = sum(n for name, n in count.items() if name.startswith("language_model."))
    assert (decoder, sum(count.values())) == (103_502_336, 323_990_528)


def test_the_published_sizes_are_read(tmp_path: Path):
    write_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config(PUBLISHED)))
    read = read_config(tmp_path, load_tokenizer(tmp_path))
    assert (read.encoder.d_model, read.encoder.window_tokens) == (896, 104)
    assert read.adapter == AdapterSpec(1024, 512, 4, 4096, 4)
    assert (read.decoder.head_dim, read.decoder.kv_size) == (64, 512)
    assert (read.decoder.attention_bias, read.decoder.qk_norm) == (True, False)
    assert read.decoder.rope_theta == 1e6
    assert read.decoder.eos_token_ids == {END}


def test_a_silent_config_means_the_published_model(pristine: Path, tmp_path: Path):
    sizes = Sizes(tower_layers=4, tower_hidden_size=160)
    silent = dict.fromkeys(
        ("merge_factor", "qwen3_asr_mlp_tower_layers", "tie_word_embeddings"), None
    )
    model = load(write_checkpoint(tmp_path, sizes, qwen3_asr_mlp_tower_hidden_size=0, **silent))
    assert model.config.adapter == AdapterSpec(40, 64, 4, 160, 4)
    assert model.decoder.weights.head is model.decoder.weights.embedding


def test_what_the_folder_is_told_to_be(pristine: Path):
    told = describe(pristine, RuntimeOptions())
    assert told["architecture"] == "arkasr"
    assert told["parameters"] == sum(map(prod, shapes(Sizes()).values()))
    assert told["encoder"]["mlp_tower_layers"] == 2
    assert told["encoder"]["merge_factor"] == 4
    memory = told["memory"]
    assert memory["kv_bytes_per_minute_of_audio"] == 750 * memory["kv_bytes_per_token"]


# -- the adapter ---------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [1, 800, 2409])
def test_steps_are_the_whole_bit_for_bit(model: Audio8Asr, frames: int):
    mel = np.random.default_rng(0).uniform(-1, 1, (frames, 128)).astype(np.float32)
    steps = model.encoder.encode_steps(mel)
    pauses = -(-frames // 800)  # one of them before the adapter
    for _ in range(pauses):
        next(steps)
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert np.array_equal(done.value.value, model.encoder.encode(mel))


@pytest.mark.parametrize(("frames", "tokens"), COUNTS.items())
def test_rows_for_frames(model: Audio8Asr, frames: int, tokens: int):
    assert model.encoder.tokens(frames) == tokens
    assert model.encoder.encode(np.zeros((frames, 128), np.float32)).shape == (tokens, 64)


def naive_means(rows: np.ndarray, count: int) -> np.ndarray:
    n = len(rows)
    bounds = [(math.floor(i * n / count), math.ceil((i + 1) * n / count)) for i in range(count)]
    return np.stack([rows[a:b].mean(axis=0) for a, b in bounds])


@pytest.mark.parametrize(
    ("rows", "count"), [(1, 1), (2, 1), (5, 1), (13, 12), (14, 13), (104, 100), (390, 375), (9, 9)]
)
def test_means_of_stretches(rows: int, count: int):
    values = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
    before = values.copy()
    assert np.allclose(stretch_means(values, count), naive_means(values, count), atol=1e-6)
    assert np.array_equal(values, before)
    if rows == count:
        assert np.array_equal(stretch_means(values, count), values)


def numpy_adapter(tensors: Tensors, rows: np.ndarray, count: int) -> np.ndarray:
    """The adapter in f64, block by block."""
    erf = np.vectorize(math.erf)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        scaled = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        return scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    def affine(x: np.ndarray, name: str) -> np.ndarray:
        return x @ tensors[f"{name}.weight"].T.astype(np.float64) + tensors[f"{name}.bias"]

    x = rows.astype(np.float64)
    for i in range(Sizes().tower_layers):
        block = f"audio_mlp_tower.layers.{i}"
        hidden = affine(norm(x, f"{block}.norm"), f"{block}.fc1")
        x = x + affine(hidden * (1 + erf(hidden / math.sqrt(2))) / 2, f"{block}.fc2")
    x = naive_means(norm(x, "audio_mlp_tower.final_norm"), count)
    return affine(norm(x, "audio_projector.0"), "audio_projector.1")


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (13, 12), (117, 112)])
def test_the_adapter_is_that_of_numpy(model: Audio8Asr, rows: int, count: int):
    values = np.random.default_rng(1).standard_normal((rows, 40)).astype(np.float32)
    expected = numpy_adapter(random_tensors(Sizes()), values, count)
    assert np.allclose(model.encoder.adapt(values, count), expected, atol=1e-4)


def test_mel_is_rounded_to_bf16_first(model: Audio8Asr):
    mel = log_mel(babble(20_000))
    bits = mel.view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    assert not np.array_equal(mel, rounded)
    assert np.array_equal(model.encoder.encode(mel), model.encoder.encode(rounded))


# -- the prompt ----------------------------------------------------------------------------------


def test_the_prompt(model: Audio8Asr):
    embeddings = np.ones((3, 64), np.float32)
    prompt = model.prompts.build(embeddings)
    text = model.tokenizer.decode(prompt.token_ids, skip_special=False)
    assert text == (
        "<|user|><|begin_of_audio|><|audio|><|audio|><|audio|><|end_of_audio|>"
        "Please transcribe this audio.<|assistant|>"
    )
    assert prompt.injection is not None
    assert list(prompt.injection.positions) == [2, 3, 4]


@pytest.mark.parametrize(
    ("asked", "match"),
    [({"context": "Ada"}, "no context.* 3 characters"), ({"language": "de"}, "told German")],
)
def test_what_the_prompt_has_no_place_for_is_refused(model: Audio8Asr, asked: Any, match: str):
    with pytest.raises(RequestError, match=match):
        model.transcribe(babble(8000), sample_rate=16_000, vad=False, **asked)


# -- from sound to text --------------------------------------------------------------------------


def test_ids_are_those_of_encoder_prompt_and_decoder(model: Audio8Asr):
    sound = babble(40_000)
    transcript = model.transcribe(sound, sample_rate=16_000, vad=False, max_new_tokens=20)
    embeddings = model.encoder.encode(log_mel(sound))
    prompt = model.prompts.build(embeddings)
    expected = generate(model.decoder.new_session(), prompt, GenerateOptions(20))
    assert transcript.token_ids == tuple(expected.token_ids)
    assert len(set(transcript.token_ids)) > 5
    assert transcript.tokens.audio == model.encoder.tokens(250) == 31
    assert transcript.language is None
    other = model.transcribe(babble(40_000, 1), sample_rate=16_000, vad=False, max_new_tokens=20)
    assert other.token_ids != transcript.token_ids


def test_an_answer_is_text_alone(pristine: Path):
    model = load(pristine)
    said = [CONTROL["<|assistant|>"], *model.tokenizer.encode(" the quick dogs "), END]
    rig(model, said)
    transcript = model.transcribe(babble(16_000), sample_rate=16_000, vad=False)
    assert (transcript.text, transcript.language) == ("the quick dogs", None)
    assert transcript.finish_reason == "stop"


def test_long_recordings_are_cut_and_joined(pristine: Path):
    model = load(pristine)
    encode = model.tokenizer.encode
    rig(model, [*encode("one"), END], [*encode("two"), END])
    transcript = model.transcribe(babble(16_000 * 40), sample_rate=16_000, vad=False)
    assert transcript.text == "one two"


@pytest.mark.parametrize("weights", ["f32", "q8", "q4"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_converted_file_answers_as_before(tmp_path: Path, weights: Any, tied: bool):
    folder = write_checkpoint(tmp_path / "model", Sizes(tied=tied))
    convert(folder, tmp_path / "x.stapes", RuntimeOptions(weights, threads=1))
    models = [load(p, weights=weights) for p in (folder, tmp_path / "x.stapes")]
    sounds = {"source": babble(30_000), "sample_rate": 16_000, "max_new_tokens": 15, "vad": False}
    first, second = (m.transcribe(**sounds) for m in models)
    assert first.token_ids == second.token_ids
    mel = log_mel(babble(30_000))
    assert np.array_equal(models[0].encoder.encode(mel), models[1].encoder.encode(mel))
    told = describe(tmp_path / "x.stapes", RuntimeOptions())
    assert (told["converted"], told["architecture"]) == (True, "arkasr")


# -- what is refused -----------------------------------------------------------------------------

MISSING = ["audio_projector.1.bias", "audio_mlp_tower.layers.1.fc2.weight"]
MISSING += ["language_model.model.layers.0.self_attn.k_proj.bias", "audio_encoder.ln_post.bias"]


@pytest.mark.parametrize("name", MISSING)
def test_missing_and_mis_shaped_tensors_are_named(tmp_path: Path, name: str):
    tensors = random_tensors(Sizes())
    write_checkpoint(tmp_path, tensors={n: t for n, t in tensors.items() if n != name})
    with pytest.raises(CheckpointError, match=f"1 missing: {name}"):
        load(tmp_path)
    longer = np.concatenate([tensors[name], tensors[name][:1]])
    write_safetensors(tmp_path / "model.safetensors", tensors | {name: longer})
    with pytest.raises(CheckpointError, match=f"{name}.*{longer.shape[0]}"):
        load(tmp_path)


def test_an_unexpected_tensor_is_named(tmp_path: Path):
    more = {"audio_mlp_tower.layers.2.norm.bias": np.zeros(40, np.float32)}
    write_checkpoint(tmp_path, tensors=random_tensors(Sizes()) | more)
    with pytest.raises(CheckpointError, match=r"1 unexpected: audio_mlp_tower\.layers\.2"):
        load(tmp_path)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"qwen3_asr_audio_config": None, "whisper_config": {}}, "no section qwen3_asr_audio_config"),
    ({"qwen3_asr_audio_config": 3}, "no section qwen3_asr_audio_config"),
    ({"audio_token_id": CONTROL["<|user|>"]}, r"audio_token_id is \d+, but .*<\|audio\|> is"),
    ({"audio_token_id": None}, "no audio_token_id"),
    ({"merge_factor": 0}, "merge_factor is 0"),
    ({"merge_factor": "4"}, "merge_factor is '4'"),
    ({"qwen3_asr_mlp_tower_layers": -1}, "mlp_tower_layers is -1"),
    ({"qwen3_asr_mlp_tower_layers": 10**9}, "more than 1000"),
    ({"num_hidden_layers": 10**9}, "more than 1000"),
    ({"num_hidden_layers": -1, "layer_types": None}, "num_hidden_layers is -1"),
    ({"qwen3_asr_mlp_tower_hidden_size": -8}, "hidden_size is -8"),
    ({"num_attention_heads": 5}, "64 does not divide into 5"),
    ({"num_attention_heads": 0}, "64 does not divide into 0"),
    ({"hidden_act": "gelu"}, "hidden_act"),
    ({"use_sliding_window": True}, "use_sliding_window"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    ({"rope_theta": None}, "no rope_theta"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "'yarn'"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
    ({"max_position_embeddings": None}, "no max_position_embeddings"),
]


@pytest.mark.parametrize(("values", "match"), WRONG, ids=[str(v)[:50] for v, _ in WRONG])
def test_a_config_that_is_not_understood_is_refused(tmp_path: Path, values: Any, match: str):
    with pytest.raises(ConfigError, match=match):
        load(write_checkpoint(tmp_path, **values))


def test_a_vocabulary_too_small_for_the_prompt_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"reach up to 506, but .* 503"):
        load(write_checkpoint(tmp_path, Sizes(vocab_size=503)))


@pytest.mark.parametrize("name", ["<|begin_of_audio|>", "<|assistant|>", "<|audio|>"])
def test_a_missing_control_token_is_named(tmp_path: Path, name: str):
    path = write_checkpoint(tmp_path) / "tokenizer.json"
    spec = json.loads(path.read_text())
    spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] != name]
    path.write_text(json.dumps(spec))
    with pytest.raises(ModelError, match="no control token"):
        load(tmp_path)
