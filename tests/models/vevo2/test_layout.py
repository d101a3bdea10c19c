"""The published folder: found from anywhere, told apart from a text model, described, converted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

import stapes
from stapes.errors import CheckpointError, ConfigError, ModelError, RequestError
from stapes.models.convert import convert
from stapes.models.description import describe
from stapes.models.vevo2.autoregressive.load import load_vevo2
from stapes.models.vevo2.autoregressive.options import CodeOptions
from stapes.models.vevo2.autoregressive.prompt import CodeRequest
from stapes.models.vevo2.json5_files import read_json5_object
from stapes.models.vevo2.layout import PARTS, find_layout
from stapes.options import RuntimeOptions
from text.bpe_folder import write_json
from text_models import QWEN2, write_folder
from text_models import random_tensors as text_tensors
from vevo2_models import GENERATION, SIZES, ids, write_ar

AR = "contentstyle_modeling/posttrained"
REQUEST = CodeRequest("The quick fox.", style_codes=range(20))
SHORT = CodeOptions(max_new_tokens=20, seed=1, codes_only=True)


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    """A published folder for one test to spoil."""
    return shutil.copytree(root, tmp_path / "copy")


def add_parts(root: Path) -> None:
    for part in PARTS.values():
        (root / part.folder).mkdir(parents=True)
        for name in part.files:
            (root / part.folder / name).write_text(
                "{/* none */ 'a': 1,}" if "config" in name else ""
            )


# -- where it is -----------------------------------------------------------------------------------


def test_from_the_root_from_the_folder_and_from_any_working_directory(root, model, monkeypatch):
    expected = model.generate(REQUEST, SHORT)
    places = {
        root: AR,
        root.parent: f"{root.name}/{AR}",
        root / AR: ".",
        root / "contentstyle_modeling": "posttrained",
    }
    for place, relative in places.items():
        monkeypatch.chdir(place)
        for path in (root, root / AR, relative, Path(relative)):
            loaded = load_vevo2(path, RuntimeOptions("f32", "f32", 1))
            assert loaded.generate(REQUEST, SHORT) == expected
    monkeypatch.chdir(root)
    assert load_vevo2(".", RuntimeOptions("f32", "f32", 1)).generate(REQUEST, SHORT) == expected
    assert not (root / "config.json").exists()


def test_paths_to_all_parts(copy, monkeypatch):
    add_parts(copy)
    monkeypatch.chdir(copy / AR)
    for given in (copy, copy / AR, "", ".", "../..", "../../vocoder/.."):
        layout = find_layout(given)
        assert (layout.root, layout.ar) == (copy, copy / AR)
        assert {part: layout.folder(part) for part in PARTS} == {
            "prosody_tokenizer": copy / "tokenizer/prosody_fvq512_6.25hz",
            "content_style_tokenizer": copy / "tokenizer/contentstyle_fvq16384_12.5hz",
            "flow_matching": copy / "acoustic_modeling/fm_emilia101k_singnet7k_repa",
            "vocoder": copy / "vocoder",
        }
        stats = copy / "acoustic_modeling/fm_emilia101k_singnet7k_repa/whisper_stats.pt"
        assert layout.whisper_stats() == stats


def test_configurations_are_json5(copy):
    add_parts(copy)
    layout = find_layout(copy)
    assert layout.config("vocoder") == layout.config("flow_matching") == {"a": 1}
    assert layout.ar_config()["preprocess"] == {"sample_rate": 24000, "hop_size": 480}


@pytest.mark.parametrize(
    ("content", "message"),
    [("{a: ", "not valid JSON5"), ("[1]", "JSON5 object, not list"), (b"\xff", "not valid JSON5")],
)
def test_broken_json5(tmp_path, content, message):
    file = tmp_path / "config.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=message):
        read_json5_object(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_json5_object(tmp_path / "other.json")


@pytest.mark.parametrize("inside", [True, False])
def test_whisper_lies_inside_or_beside(copy, inside):
    with pytest.raises(ModelError, match=r"config\.json or a \.pt file was looked for in .* or "):
        find_layout(copy).whisper()
    place = (copy if inside else copy.parent) / "whisper-medium"
    place.mkdir()
    (place / "config.json").write_text("{}")
    assert find_layout(copy).whisper() == find_layout(copy / AR).whisper() == place


def test_missing_parts_are_named(copy):
    (copy / "vocoder").mkdir()
    (copy / "vocoder/config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"vocoder in .* lacks model\.safetensors\."):
        find_layout(copy).folder("vocoder")
    with pytest.raises(ModelError, match=r"config\.json, model\.safetensors, whisper_stats"):
        find_layout(copy).whisper_stats()


def test_the_folder_of_the_ar_by_itself(copy, tmp_path, model):
    alone = shutil.copytree(copy / AR, tmp_path / "alone")
    layout = find_layout(alone)
    assert (layout.ar, layout.root) == (alone, None)
    with pytest.raises(ModelError, match="autoregressive stage alone: the vocoder is looked for"):
        layout.folder("vocoder")
    with pytest.raises(ModelError, match="no Whisper medium"):
        layout.whisper()
    loaded = load_vevo2(alone, RuntimeOptions("f32", "f32", 1))
    assert loaded.generate(REQUEST, SHORT) == model.generate(REQUEST, SHORT)


def test_before_the_last_training_when_there_is_nothing_else(copy):
    shutil.move(copy / AR, copy / "contentstyle_modeling/pretrained")
    assert find_layout(copy).ar == copy / "contentstyle_modeling/pretrained"


def test_no_model_at_all(tmp_path):
    with pytest.raises(ModelError, match="holds no Vevo2 model"):
        find_layout(tmp_path)
    with pytest.raises(ModelError, match="no such folder or file"):
        load_vevo2(tmp_path / "nothing")


# -- what it says ----------------------------------------------------------------------------------


def test_the_penalty_alone_is_read_from_generation_config(copy):
    file = copy / AR / "generation_config.json"
    for value, expected in ((1.25, 1.25), (None, 1.1), (1, 1.0)):
        write_json(file, {**GENERATION, "repetition_penalty": value})
        loaded = load_vevo2(copy)
        assert loaded.repetition_penalty == expected
        assert loaded.decoder.spec.eos_token_ids == {ids()["<|im_end|>"]}
    file.unlink()
    assert load_vevo2(copy).repetition_penalty == 1.1
    write_json(file, {"repetition_penalty": "1.1"})
    with pytest.raises(ConfigError, match=r"repetition_penalty is '1.1', not a number"):
        load_vevo2(copy)


def test_the_weights_are_bf16_unless_asked_otherwise(root):
    found = {w: load_vevo2(root, RuntimeOptions(w)) for w in (None, "bf16", "q8", "f32")}
    sizes = {w: loaded.decoder.weights.nbytes for w, loaded in found.items()}
    assert sizes[None] == sizes["bf16"] < sizes["f32"]
    assert sizes["q8"] < sizes["bf16"]


@pytest.mark.parametrize("missing", ["<|content_style_16383|>", "<|prosody_0|>", "<|prosody_end|>"])
def test_a_missing_token_is_named(copy, missing):
    for name in ("added_tokens.json", "tokenizer_config.json"):
        (copy / AR / name).unlink()
    file = copy / AR / "tokenizer.json"
    file.write_text(file.read_text().replace(f'"{missing}"', f'"{missing[:-2]}"'))
    with pytest.raises(ConfigError, match=f"no control token '{missing}'".replace("|", r"\|")):
        load_vevo2(copy)


def test_an_embedding_that_is_too_small(copy):
    size = SIZES.vocab_size
    write_ar(copy / AR, vocab_size=size - 1)
    with pytest.raises(ConfigError, match=f"{size} ids, but config.json says vocab_size"):
        load_vevo2(copy)


def test_damaged_weights(copy):
    file = copy / AR / "model.safetensors"
    tensors = load_file(file)
    tensors.pop("model.layers.1.self_attn.q_proj.bias")
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=r"model\.layers\.1\.self_attn\.q_proj\.bias"):
        load_vevo2(copy)


# -- told apart, described, converted --------------------------------------------------------------


def test_it_is_no_text_model_and_no_speech_model(root, tmp_path):
    for load in (stapes.load_text, stapes.load):
        with pytest.raises(ConfigError, match="is 'vevo2', a voice model"):
            load(root)
    text = write_folder(tmp_path / "text", QWEN2, text_tensors(QWEN2))
    with pytest.raises(ConfigError, match=r"'qwen2', a text model.*supported is 'vevo2'"):
        load_vevo2(text)


@pytest.mark.parametrize("kept", ["added_tokens.json", "tokenizer_config.json", "tokenizer.json"])
def test_any_file_that_names_the_tokens_tells(copy, kept):
    """The tokenizer's older form needs the names beside it; they may lie in either file."""
    folder = copy / AR
    if kept != "tokenizer.json":
        model = json.loads((folder / "tokenizer.json").read_text())["model"]
        write_json(folder / "vocab.json", model["vocab"])
        (folder / "merges.txt").write_text("\n".join(model["merges"]) + "\n")
    for name in {"added_tokens.json", "tokenizer_config.json", "tokenizer.json"} - {kept}:
        (folder / name).unlink()
    assert load_vevo2(copy, RuntimeOptions("f32", "f32", 1)).tokens.turn_end == ids()["<|im_end|>"]


@pytest.mark.parametrize("below", ["", AR])
def test_info_tells_the_kind_and_the_licence(run, root, below):
    ran = run("info", "--json", str(root / below))
    assert (ran.code, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert told["architecture"] == "vevo2"
    assert told["license"].startswith("CC-BY-NC-ND-4.0")
    assert told["decoder"]["weights"] == "bf16"
    assert told["decoder"]["vocab_size"] == SIZES.vocab_size
    assert (
        told["memory"]["kv_bytes_per_minute_of_audio"] == 750 * told["memory"]["kv_bytes_per_token"]
    )
    plain = run("info", "--no-hash", str(root / below))
    assert "CC-BY-NC-ND-4.0" in plain.out


def test_others_state_no_licence(tmp_path):
    text = write_folder(tmp_path / "text", QWEN2, text_tensors(QWEN2))
    assert "license" not in describe(text, RuntimeOptions())


@pytest.mark.parametrize("format", [None, "q8"])
def test_a_converted_file_writes_the_same_codes(run, root, tmp_path, format):
    file = tmp_path / "vevo2.stapes"
    convert(root, file, RuntimeOptions(format))
    told = describe(file, RuntimeOptions())
    assert told["decoder"]["weights"] == (format or "bf16")
    assert (told["architecture"], told["converted"]) == ("vevo2", True)
    before, after = load_vevo2(root, RuntimeOptions(format)), load_vevo2(file)
    assert after.generate(REQUEST, SHORT) == before.generate(REQUEST, SHORT)
    assert after.repetition_penalty == before.repetition_penalty
    with pytest.raises(RequestError, match="holds the decoder as"):
        load_vevo2(file, RuntimeOptions("f32"))
    with pytest.raises(ConfigError, match="is 'vevo2'"):
        stapes.load_text(file)
