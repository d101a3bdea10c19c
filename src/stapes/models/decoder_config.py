"""The decoder's part of a Hugging Face config.json: model_type qwen2 or qwen3."""

from __future__ import annotations

from stapes.decoder import DecoderSpec
from stapes.errors import ConfigError
from stapes.models.config_reader import ConfigReader

MAX_LAYERS = 1000  # no real model comes near; a damaged file is refused before it costs memory


def decoder_spec(config: ConfigReader, kind: str, eos_token_ids: frozenset[int]) -> DecoderSpec:
    """The decoder that a configuration describes, with the checkpoint's own tensor names.

    Args:
        config: the file.
        kind: its model_type, "qwen2" or "qwen3".
        eos_token_ids: ids that end an answer.

    Raises:
        ConfigError: a value is missing, malformed, or asks for what is not supported.
    """
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
        eos_token_ids=eos_token_ids,
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
