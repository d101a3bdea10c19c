"""The configuration of a Hugging Face folder: model_type qwen2 or qwen3."""

from __future__ import annotations

from typing import Any

from stapes.decoder import DecoderSpec
from stapes.errors import ConfigError
from stapes.models.config_reader import ConfigReader
from stapes.text.eos import eos_token_ids
from stapes.text.folder import Folder
from stapes.text.json_files import read_json_object
from stapes.text.tokenizer import Tokenizer

KINDS = ("qwen2", "qwen3")  # model_type here, general.architecture in GGUF
PREFIX_IDS = "stapes_prefix_ids"  # our own key, in the config.json that stands for a GGUF file's
MAX_LAYERS = 1000  # no real model comes near; a damaged file is refused before it costs memory


def read_config(folder: Folder, tokenizer: Tokenizer) -> DecoderSpec:
    """The decoder of a checkpoint folder, with the checkpoint's own tensor names.

    Raises:
        ConfigError: a file or value is missing, malformed, or asks for what is not supported.
    """
    values = read_json_object(folder / "config.json")
    kind = values.get("model_type")
    if kind not in KINDS:
        raise ConfigError(
            f"{folder / 'config.json'} says model_type {kind!r}; supported text models are "
            f"{' and '.join(KINDS)}."
        )
    config = ConfigReader(values, "config.json")
    _refuse_variants(config, kind)
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    return DecoderSpec(
        hidden_size=hidden,
        num_hidden_layers=config.integer("num_hidden_layers", at_most=MAX_LAYERS),
        num_attention_heads=heads,
        num_key_value_heads=config.integer("num_key_value_heads"),
        head_dim=config.integer("head_dim") if "head_dim" in config else head_dim(hidden, heads),
        intermediate_size=config.integer("intermediate_size"),
        vocab_size=config.integer("vocab_size"),
        max_position_embeddings=config.integer("max_position_embeddings"),
        rms_norm_eps=config.number("rms_norm_eps"),
        rope_theta=config.rope_theta(),
        # transformers leaves the flag out where it has its classes' default
        tie_word_embeddings=config.boolean("tie_word_embeddings", default=False),
        attention_bias=kind == "qwen2",
        qk_norm=kind == "qwen3",
        eos_token_ids=eos_token_ids(folder, tokenizer, values),
    )


def _refuse_variants(config: ConfigReader, kind: str) -> None:
    """What the classes of transformers can do beyond what was ever published."""
    config.require("hidden_act", "silu")
    config.require("use_sliding_window", False)
    if "layer_types" in config:
        layers = config.integer("num_hidden_layers", at_most=MAX_LAYERS)
        config.require("layer_types", ["full_attention"] * layers)
    if kind == "qwen3":
        config.require("attention_bias", False)  # there it would give o_proj one, too


def head_dim(hidden_size: int, heads: int) -> int:
    """Size of a head where a file does not give it."""
    if heads < 1 or hidden_size % heads:
        raise ConfigError(f"A hidden size of {hidden_size} does not divide into {heads} heads.")
    return hidden_size // heads


def to_config(spec: DecoderSpec, prefix_ids: tuple[int, ...]) -> dict[str, Any]:
    """The config.json from which `read_config` makes this decoder."""
    names = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
        "rms_norm_eps",
        "rope_theta",
        "tie_word_embeddings",
    )
    return {
        "model_type": "qwen3" if spec.qk_norm else "qwen2",
        **{name: getattr(spec, name) for name in names},
        "eos_token_id": sorted(spec.eos_token_ids),
        PREFIX_IDS: list(prefix_ids),
    }


def read_prefix_ids(folder: Folder, vocab_size: int) -> tuple[int, ...]:
    """Ids in front of every plain prompt: none, unless a GGUF file asked for one."""
    ids = read_json_object(folder / "config.json").get(PREFIX_IDS, [])
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < vocab_size for i in ids):
        raise ConfigError(f"{folder / 'config.json'}: {PREFIX_IDS} {ids!r} is no list of ids.")
    return tuple(ids)
