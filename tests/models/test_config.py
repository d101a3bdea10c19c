"""Configurations of both layouts: every number from the files, or an error that names it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoints import CONTROL, EOS_IDS, Sizes, hf_config, original_config
from stapes.errors import ConfigError
from stapes.models.qwen3_asr.config import Qwen3AsrConfig, read_config
from stapes.text.tokenizer import load_tokenizer
from text.bpe_folder import tokenizer_config, write_json, write_new_layout, write_old_layout

Config = dict[str, Any]
Change = Callable[[Config], Any]
SIZES = Sizes(num_attention_heads=6, num_key_value_heads=3, d_model=80, encoder_layers=3)
LAYOUTS = ["hf", "original"]


def sections(config: Config) -> tuple[Config, Config, Config]:
    """The part that holds the two models' sections, and those."""
    inner = config.get("thinker_config", config)
    return inner, inner["audio_config"], inner["text_config"]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Qwen3AsrConfig]:
    """read(layout, change): the configuration of a folder whose config.json was changed."""

    def read_changed(layout: str, change: Change = lambda config: None) -> Qwen3AsrConfig:
        config = hf_config(SIZES)
        config = original_config(config) if layout == "original" else config
        change(config)
        write_json(tmp_path / "config.json", config)
        if layout == "original" and not (tmp_path / "generation_config.json").exists():
            write_json(tmp_path / "generation_config.json", {"eos_token_id": list(EOS_IDS)})
        write_new_layout(tmp_path)
        return read_config(tmp_path, load_tokenizer(tmp_path))

    return read_changed


@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_layouts_say_the_same(read, layout: str):
    config = read(layout)
    assert vars(config.encoder) == {
        "d_model": 80,
        "encoder_layers": 3,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 96,
        "output_dim": 64,
        "num_mel_bins": 128,
        "downsample_hidden_size": 8,
        "n_window_infer": 800,
    }
    decoder = config.decoder
    assert (decoder.num_attention_heads, decoder.num_key_value_heads) == (6, 3)
    assert (decoder.head_dim, decoder.hidden_size, decoder.vocab_size) == (32, 64, 512)
    assert (decoder.rope_theta, decoder.rms_norm_eps) == (1e6, 1e-6)
    assert decoder.qk_norm
    assert not decoder.attention_bias
    assert decoder.tie_word_embeddings
    assert decoder.eos_token_ids == frozenset(EOS_IDS)
    assert decoder.max_position_embeddings == 65536
    assert config.audio_token_id == CONTROL["<|audio_pad|>"]


def test_each_layout_has_its_names(read):
    hf, original = read("hf"), read("original")
    assert hf.decoder.names.layer_prefix == "model.language_model.layers"
    assert hf.encoder_names.projector_1 == "model.multi_modal_projector.linear_1"
    assert original.decoder.names.lm_head == "thinker.lm_head.weight"
    assert original.encoder_names.projector_2 == "thinker.audio_tower.proj2"


def test_the_published_sizes_window_and_tokens(read):
    assert read("hf").encoder.window_tokens == 104
    assert read("hf", lambda c: c["audio_config"].update(n_window_infer=100)) \
        .encoder.window_tokens == 13  # fmt: skip


# -- the tie flag --------------------------------------------------------------------------------


def tie(**places: bool) -> Change:
    """The flag at these places alone."""

    def change(config: Config) -> None:
        inner, _, text = sections(config)
        found = {"root": config, "inner": inner, "text": text}
        for section in found.values():
            section.pop("tie_word_embeddings", None)
        for place, tied in places.items():
            found[place]["tie_word_embeddings"] = tied

    return change


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("place", ["root", "inner", "text"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_tie_flag_is_found_wherever_it_stands(read, layout: str, place: str, tied: bool):
    if layout == "hf" and place == "inner":
        place = "root"
    assert read(layout, tie(**{place: tied})).decoder.tie_word_embeddings is tied


@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_two_tie_flags_the_outer_one_rules(read, layout: str):
    for tied in (True, False):
        config = read(layout, tie(root=tied, text=not tied))
        assert config.decoder.tie_word_embeddings is tied


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_a_tie_flag_nothing_is_guessed(read, layout: str):
    with pytest.raises(ConfigError, match="tie_word_embeddings is missing"):
        read(layout, tie())


@pytest.mark.parametrize("value", ["true", 1, 0, []], ids=repr)
def test_a_tie_flag_is_true_or_false(read, value: Any):
    with pytest.raises(ConfigError, match="tie_word_embeddings"):
        read("hf", tie(root=value))


# -- RoPE ----------------------------------------------------------------------------------------


def rope(**keys: Any) -> Change:
    def change(config: Config) -> None:
        _, _, text = sections(config)
        for key in ("rope_theta", "rope_parameters", "rope_scaling"):
            text.pop(key, None)
        text.update(keys)

    return change


PLAIN = [
    {"rope_theta": 5e5},
    {"rope_theta": 500_000},
    {"rope_parameters": {"rope_theta": 5e5}},
    {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}},
    {"rope_parameters": {"rope_type": "default"}, "rope_theta": 5e5},
    {"rope_scaling": None, "rope_theta": 5e5},
    {"rope_scaling": {"mrope_section": [6, 5, 5], "type": "mrope"}, "rope_theta": 5e5},
    {"rope_scaling": {"mrope_section": [6, 5, 5], "rope_type": "default"}, "rope_theta": 5e5},
    {"rope_parameters": {"mrope_section": [6, 5, 5], "rope_theta": 5e5, "interleaved": True}},
]


@pytest.mark.parametrize("keys", PLAIN, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_base_of_rope_is_found_wherever_it_stands(read, layout: str, keys: Config):
    assert read(layout, rope(**keys)).decoder.rope_theta == 5e5


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "longrope", "llama3", 3])
@pytest.mark.parametrize("place", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_scaled_rope_is_refused(read, place: str, key: str, kind: Any):
    scaled = {place: {key: kind, "factor": 4.0, "rope_theta": 1e6}, "rope_theta": 1e6}
    with pytest.raises(ConfigError, match=f"{key} is {kind!r}; only"):
        read("hf", rope(**scaled))


def test_a_scale_beside_plain_parameters_is_seen(read):
    both = {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "rope_scaling": {"rope_type": "yarn", "factor": 2.0},
    }
    with pytest.raises(ConfigError, match="yarn"):
        read("hf", rope(**both))


@pytest.mark.parametrize("place", ["text", "rope_parameters"])
def test_partial_rotation_is_refused(read, place: str):
    keys: Config = {"rope_parameters": {"rope_theta": 1e6}}
    (keys if place == "text" else keys[place])["partial_rotary_factor"] = 0.5
    with pytest.raises(ConfigError, match=r"partial_rotary_factor is 0\.5"):
        read("hf", rope(**keys))
    (keys if place == "text" else keys[place])["partial_rotary_factor"] = 1.0
    read("hf", rope(**keys))


@pytest.mark.parametrize("keys", [{}, {"rope_parameters": {}}, {"rope_theta": None}], ids=str)
def test_without_a_base_of_rope_nothing_is_guessed(read, keys: Config):
    with pytest.raises(ConfigError, match="rope_theta"):
        read("hf", rope(**keys))


# -- the ids that end an answer ------------------------------------------------------------------


def test_ends_are_the_union_of_all_files(tmp_path: Path):
    end, start = CONTROL["<|im_end|>"], CONTROL["<|im_start|>"]
    text_end = CONTROL["<|endoftext|>"]
    cases: list[tuple[Any, Any, str | None, set[int]]] = [
        ([end, text_end], None, None, {end, text_end}),  # list in generation_config
        (None, end, None, {end}),  # scalar in config
        (None, None, "<|im_end|>", {end}),  # the tokenizer alone
        (text_end, [start], "<|im_end|>", {text_end, start, end}),
        (7, 7, None, {7}),
    ]
    for number, (generation, config_eos, name, expected) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        config = hf_config(SIZES)
        config["eos_token_id"] = config_eos
        write_json(folder / "config.json", config)
        write_json(folder / "generation_config.json", {"eos_token_id": generation})
        write_old_layout(folder, {**tokenizer_config(), "eos_token": name})
        found = read_config(folder, load_tokenizer(folder)).decoder.eos_token_ids
        assert found == frozenset(expected)


def test_an_end_in_the_nested_config_counts(read, tmp_path: Path):
    write_json(tmp_path / "generation_config.json", {})
    change: Change = lambda c: c["thinker_config"]["text_config"].update(eos_token_id=9)  # noqa: E731
    assert read("original", change).decoder.eos_token_ids == frozenset({9})


def test_an_end_outside_the_vocabulary_is_refused(read):
    with pytest.raises(ConfigError, match="eos_token_ids"):
        read("hf", lambda c: c.update(eos_token_id=[3, 512]))


# -- names and numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_encoder_sizes_under_their_general_names(read, layout: str):
    names = {
        "encoder_attention_heads": "num_attention_heads",
        "encoder_layers": "num_hidden_layers",
        "d_model": "hidden_size",
        "encoder_ffn_dim": "intermediate_size",
    }

    def rename(config: Config) -> None:
        audio = sections(config)[1]
        for old, new in names.items():
            audio[new] = audio.pop(old)

    assert read(layout, rename).encoder == read(layout).encoder


AUDIO_KEYS = [
    "d_model",
    "encoder_layers",
    "encoder_attention_heads",
    "encoder_ffn_dim",
    "output_dim",
    "num_mel_bins",
    "downsample_hidden_size",
    "n_window",
    "n_window_infer",
]
TEXT_KEYS = [
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
]
KEYS = [("audio_config", k) for k in AUDIO_KEYS] + [("text_config", k) for k in TEXT_KEYS]


def put(section: str, key: str, value: Any) -> Change:
    def change(config: Config) -> None:
        sections(config)[0][section][key] = value

    return change


@pytest.mark.parametrize(("section", "key"), [*KEYS, ("text_config", "rms_norm_eps")])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_default_takes_the_place_of_a_missing_number(read, layout: str, section: str, key: str):
    def remove(config: Config) -> None:
        del sections(config)[0][section][key]

    with pytest.raises(ConfigError, match=key):
        read(layout, remove)
    with pytest.raises(ConfigError, match=key):
        read(layout, put(section, key, None))


@pytest.mark.parametrize("value", [0, -3, 2.5, "64", True, [64], {}, float("nan")], ids=repr)
@pytest.mark.parametrize(("section", "key"), KEYS)
def test_bad_numbers_are_named(read, section: str, key: str, value: Any):
    with pytest.raises(ConfigError, match=key):
        read("hf", put(section, key, value))


@pytest.mark.parametrize("value", ["1e-6", True, None, -1e-6, float("nan"), float("inf")], ids=repr)
def test_a_bad_epsilon_is_named(read, value: Any):
    with pytest.raises(ConfigError, match="rms_norm_eps"):
        read("hf", put("text_config", "rms_norm_eps", value))


@pytest.mark.parametrize("value", [0, -1, "1e6", True, float("inf"), float("nan")], ids=repr)
def test_a_bad_base_of_rope_is_named(read, value: Any):
    with pytest.raises(ConfigError, match="rope_theta"):
        read("hf", rope(rope_theta=value))


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("audio_config", "encoder_layers"),
        ("text_config", "num_hidden_layers"),
        ("audio_config", "n_window_infer"),
    ],
)
def test_absurd_numbers_are_refused_at_once(read, section: str, key: str):
    started = time.perf_counter()
    with pytest.raises(ConfigError, match=key):
        read("hf", put(section, key, 100 * 10**13))
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("audio_config", "n_window", 100),
        ("audio_config", "activation_function", "relu"),
        ("audio_config", "scale_embedding", True),
        ("audio_config", "n_window_infer", 850),
        ("audio_config", "encoder_attention_heads", 3),
        ("audio_config", "d_model", 2),
        ("text_config", "hidden_act", "gelu"),
        ("text_config", "use_sliding_window", True),
        ("text_config", "num_key_value_heads", 4),
        ("text_config", "head_dim", 31),
        ("text_config", "attention_bias", "no"),
    ],
)
def test_what_is_not_implemented_is_refused(read, section: str, key: str, value: Any):
    with pytest.raises(ConfigError, match=f"{key}|d_model|num_attention_heads"):
        read("hf", put(section, key, value))


@pytest.mark.parametrize("key", ["audio_config", "text_config"])
@pytest.mark.parametrize("value", [None, [], "qwen3", 3], ids=repr)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sections_are_objects(read, layout: str, key: str, value: Any):
    def change(config: Config) -> None:
        sections(config)[0][key] = value

    with pytest.raises(ConfigError, match=key):
        read(layout, change)


@pytest.mark.parametrize("value", [None, "505", 1.5, True], ids=repr)
def test_the_audio_token_is_an_id(read, value: Any):
    with pytest.raises(ConfigError, match="audio_token_id"):
        read("hf", lambda c: c.update(audio_token_id=value))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": 1', "\xff\xfe", "nonsense"])
def test_a_config_that_is_no_json_object_is_named(tmp_path: Path, text: str):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    write_old_layout(tmp_path)
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_config(tmp_path, load_tokenizer(tmp_path))


def test_unknown_keys_do_no_harm(read):
    def add(config: Config) -> None:
        config["note"] = json.loads('{"deep": [1, 2]}')
        sections(config)[1]["max_source_positions"] = 1500
        sections(config)[2]["max_window_layers"] = 28

    assert read("hf", add) == read("hf")
