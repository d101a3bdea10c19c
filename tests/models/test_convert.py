"""Converted models answer as the originals do, and are used where they lie."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stapes
from checkpoints import Sizes, write_checkpoint
from decoder.tiny import all_logits, random_prompt
from models.conftest import SMALL
from sounds import babble
from stapes.errors import ConfigError, ModelError, RequestError, StapesError, TensorFileError
from stapes.models.convert import convert
from stapes.models.qwen_text import load_text_model
from stapes.options import RuntimeOptions
from text_models import KINDS, QWEN2, QWEN3, TEMPLATE, random_tensors, write_folder, write_gguf

FORMATS = ("f32", "bf16", "q8", "q4")
UNTIED = dataclasses.replace(SMALL, tied=False)


def converted(source: Path, target: Path, weights: Any = "q8", encoder: Any = None) -> Path:
    options = RuntimeOptions(weights, threads=1, encoder_weights=encoder)
    convert(source, target, options)
    return target


def load(path: Path, **options: Any) -> Any:
    return stapes.load(path, kv="f32", threads=1, **options)


def answers(model: Any) -> dict[str, Any]:
    """The ids of a transcription, the encoder's output and the decoder's logits."""
    mel = np.random.default_rng(0).standard_normal((150, 128)).astype(np.float32)
    transcript = model.transcribe(babble(16000), sample_rate=16_000, vad=False, max_new_tokens=12)
    prompt = random_prompt(9, spec=model.decoder.spec)
    return {
        "ids": transcript.token_ids,
        "text": transcript.text,
        "encoded": model.encoder.encode(mel).tobytes(),
        "logits": all_logits(model.decoder, prompt).tobytes(),
    }


@pytest.mark.parametrize("layout", ["hf", "original"])
@pytest.mark.parametrize("sizes", [SMALL, UNTIED], ids=["tied", "untied"])
def test_both_layouts_answer_as_before(tmp_path: Path, layout: Any, sizes: Sizes):
    folder = write_checkpoint(tmp_path / "model", sizes, layout=layout)
    file = converted(folder, tmp_path / "model.stapes")
    model = load(file)
    assert answers(model) == answers(load(folder))
    assert model.name == str(file)
    assert (model.decoder.weights.head is model.decoder.weights.embedding) is sizes.tied


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("encoder", [None, "f32", "q4"])
def test_every_format_answers_as_before(pristine: Path, tmp_path: Path, weights, encoder):
    file = converted(pristine, tmp_path / "x", weights, encoder)
    expected = answers(load(pristine, weights=weights, encoder_weights=encoder))
    assert answers(load(file)) == expected
    assert answers(load(file, weights=weights)) == expected


def test_an_encoder_is_not_packed_below_eight_bits_unasked(pristine: Path, tmp_path: Path):
    for place in (pristine, converted(pristine, tmp_path / "x", "q4")):
        model = load(place, weights="q4")
        held = {m.format for m in model.encoder._body.plan.matrices}
        assert held == {"q8"}
        assert model.decoder.weights.embedding.format == "q4"


def test_a_bundled_model_by_name(tmp_path: Path):
    convert("tiny-en", tmp_path / "x", RuntimeOptions(threads=1))
    assert answers(load(tmp_path / "x")) == answers(
        load(Path(stapes.models.registry.BUNDLED / "tiny-en"))
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gguf", [False, True])
def test_text_models(tmp_path: Path, kind: str, gguf: bool):
    source, sizes = tmp_path / "source", KINDS[kind]
    if gguf:
        more = {"tokenizer.ggml.add_bos_token": True}
        write_gguf(source, sizes, random_tensors(sizes), lambda name: "Q8_0", metadata=more)
    else:
        write_folder(source, sizes, random_tensors(sizes))
        (source / "chat_template.jinja").write_text(TEMPLATE)
    before = load_text_model(source, RuntimeOptions("q8", "f32", 1))
    after = load_text_model(converted(source, tmp_path / "x"), RuntimeOptions(None, "f32", 1))
    assert after.decoder.spec == before.decoder.spec
    assert after.chat_template == before.chat_template == TEMPLATE
    assert after.prefix_ids == before.prefix_ids
    assert len(after.prefix_ids) == gguf
    text = "The quick brown fox; größe 你好 <|im_end|>"
    assert after.tokenizer.encode(text) == before.tokenizer.encode(text)
    assert after.tokenizer.token_id("<|im_end|>") == before.tokenizer.token_id("<|im_end|>")
    prompt = random_prompt(30, spec=before.decoder.spec)
    assert np.array_equal(all_logits(after.decoder, prompt), all_logits(before.decoder, prompt))


def test_every_kind_of_text_model_is_meant():
    assert {sizes.model_type for sizes in KINDS.values()} == {QWEN2.model_type, QWEN3.model_type}


def test_a_text_model_does_not_transcribe(tmp_path: Path):
    folder = write_folder(tmp_path / "text", QWEN3, random_tensors(QWEN3))
    for path in (folder, converted(folder, tmp_path / "x")):
        with pytest.raises(ConfigError, match="supported is 'qwen3_asr'"):
            load(path)


# -- in place ------------------------------------------------------------------------------------


def test_weights_are_used_where_they_lie(pristine: Path, tmp_path: Path):
    model = load(converted(pristine, tmp_path / "x"))
    for matrix in model.decoder.weights.matrices():
        assert not matrix.data.flags.owndata
        assert not matrix.data.flags.writeable


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="needs Linux")
def test_no_memory_of_its_own(tmp_path: Path):
    """20 MB of weights: what a loaded model adds is mapped, not allocated."""
    sizes = dataclasses.replace(SMALL, vocab_size=80_000)
    file = converted(write_checkpoint(tmp_path / "model", sizes), tmp_path / "x", "f32")
    load(file)  # what the first one of a process allocates for good
    before = anonymous_kb()
    model = load(file)
    assert model.transcribe(babble(8000), sample_rate=16_000, vad=False).text is not None
    assert model.decoder.weights.nbytes > 20e6
    assert anonymous_kb() - before < 10_000


def anonymous_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def test_the_original_is_not_needed_any_more(folder: Path, tmp_path: Path):
    file = converted(folder, tmp_path / "x")
    expected = answers(load(folder))
    shutil.rmtree(folder)
    assert answers(load(file)) == expected


@pytest.mark.parametrize("name", ["größe.stapes", "模型 一", "🦉.safetensors", "-dash", "a'b", "x"])
def test_files_of_any_name(pristine: Path, tmp_path: Path, name: str):
    assert load(converted(pristine, tmp_path / name)).name == str(tmp_path / name)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"weights": "q4"}, {"encoder_weights": "f32"}], ids=str)
def test_formats_that_the_file_does_not_hold(pristine: Path, tmp_path: Path, options):
    file = converted(pristine, tmp_path / "x")
    with pytest.raises(RequestError, match="as q8 weights, not as"):
        load(file, **options)


def test_a_destination_that_is_there(pristine: Path, tmp_path: Path):
    target = tmp_path / "x"
    target.write_bytes(b"precious")
    with pytest.raises(RequestError, match="x exists; --force replaces it"):
        converted(pristine, target)
    assert target.read_bytes() == b"precious"
    convert(pristine, target, RuntimeOptions(threads=1), force=True)
    assert load(target).name == str(target)
    assert os.listdir(tmp_path) == ["x"]


def test_places_that_are_no_destination(folder: Path, tmp_path: Path):
    os.link(folder / "model.safetensors", tmp_path / "hard-link")
    (tmp_path / "link").symlink_to(folder / "model.safetensors")
    refused = {
        folder: "is a folder",
        tmp_path: "is a folder",
        folder / "model.safetensors": "is the model itself",
        tmp_path / "link": "is the model itself",
        tmp_path / "absent" / "x": "folder that does not exist",
    }
    for target, message in refused.items():
        with pytest.raises(RequestError, match=message):
            convert(folder, target, RuntimeOptions(threads=1), force=True)


def test_a_gguf_file_is_not_written_over(tmp_path: Path):
    path = tmp_path / "x.gguf"
    write_gguf(path, QWEN3, random_tensors(QWEN3))
    with pytest.raises(RequestError, match="is the model itself"):
        convert(path, path, RuntimeOptions(threads=1), force=True)


@pytest.mark.parametrize("weights", ["q8", "q4"])
def test_a_converted_file_cannot_be_converted(pristine: Path, tmp_path: Path, weights: Any):
    file = converted(pristine, tmp_path / "x")
    for target in (file, tmp_path / "y"):
        with pytest.raises(RequestError, match="converted file already, in q8"):
            convert(file, target, RuntimeOptions(weights, threads=1), force=True)
    assert os.listdir(tmp_path) == ["x"]


def test_a_model_that_cannot_be_loaded_leaves_no_file(folder: Path, tmp_path: Path):
    (folder / "tokenizer.json").write_text("{")
    target = tmp_path / "x"
    with pytest.raises(ConfigError):
        converted(folder, target)
    assert not target.exists()
    with pytest.raises(ModelError, match="no model"):
        convert("absent", target, RuntimeOptions())


# -- damage --------------------------------------------------------------------------------------


def texts(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def rewrite(path: Path, fields: dict[str, Any], data: bytes) -> None:
    text = json.dumps(fields).encode()
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("version", "9", "convert the original once more"),
        ("formats", None, "no valid entry 'formats'"),
        ("formats", "[]", "'formats' is no object"),
        ("tokenizer", "{", "no valid entry 'tokenizer'"),
        ("tokenizer", "{}", "malformed"),
        ("tokenizer", '{"control": [], "split": 1}', "malformed"),
        ("file.config.json", None, r"config\.json cannot be read"),
        ("file.config.json", "{", r"x/config\.json is not valid JSON"),
        ("file.config.json", '{"model_type": "qwen9"}', "qwen9"),
    ],
)
def test_texts_that_are_wrong(pristine: Path, tmp_path: Path, name, value, message):
    file = converted(pristine, tmp_path / "x")
    fields, data = texts(file)
    fields["__metadata__"].pop(name)
    if value is not None:
        fields["__metadata__"][name] = value
    rewrite(file, fields, data)
    with pytest.raises(ModelError, match=message):
        load(file)


def test_a_matrix_that_has_been_turned(pristine: Path, tmp_path: Path):
    """The same number of bytes, but not the model's shape."""
    file = converted(pristine, tmp_path / "x", "f32")
    fields, data = texts(file)
    table = json.loads(fields["__metadata__"]["matrices"])
    key = next(key for key, (_, out, inputs) in table.items() if out != inputs and out % 16 == 0)
    table[key] = [table[key][0], table[key][2], table[key][1]]
    fields["__metadata__"]["matrices"] = json.dumps(table)
    rewrite(file, fields, data)
    with pytest.raises(ModelError, match=r"mis-shaped|takes"):
        load(file)


def test_an_entry_less(pristine: Path, tmp_path: Path):
    file = converted(pristine, tmp_path / "x")
    fields, data = texts(file)
    name = "model.language_model.norm.weight"
    fields["other"] = fields.pop(name)
    rewrite(file, fields, data)
    with pytest.raises(ModelError, match=f"1 missing: {name}; 1 unexpected: other"):
        load(file)


def test_a_file_that_is_cut(pristine: Path, tmp_path: Path):
    file = converted(pristine, tmp_path / "x")
    data = file.read_bytes()
    for size in (9, 100, len(data) // 4, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:size])
        with pytest.raises(TensorFileError):
            load(file)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzzed")
    write_checkpoint(folder / "model", SMALL)
    return converted(folder / "model", folder / "good")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    place=st.floats(0, 1),
    region=st.sampled_from(["header", "data", "tokenizer"]),
    bit=st.integers(0, 7),
)
def test_any_bit_may_be_wrong(packed: Path, place: float, region: str, bit: int):
    """A damaged file is refused, or loads and answers: with an error of ours, or with some text."""
    data = bytearray(packed.read_bytes())
    header = 8 + int.from_bytes(data[:8], "little")
    start, end = {
        "header": (0, header),
        "data": (header, len(data)),
        "tokenizer": (len(data) - 40_000, len(data)),
    }[region]
    data[start + int(place * (end - start - 1))] ^= 1 << bit
    bad = packed.with_name("bad")
    bad.unlink(missing_ok=True)
    bad.write_bytes(data)
    try:
        model = load(bad)
        model.transcribe(
            babble(4000), sample_rate=16_000, vad=False, context="fox", max_new_tokens=3
        )
    except StapesError:
        pass
