"""Sizes and tensor names of a Whisper encoder, in the layouts in which it is published."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from stapes.errors import CheckpointError, ConfigError
from stapes.models.config_reader import ConfigReader


@dataclass(frozen=True)
class WhisperSpec:
    """Sizes of the encoder; the names are those of Hugging Face's config.json."""

    num_mel_bins: int
    d_model: int
    encoder_layers: int
    encoder_attention_heads: int
    encoder_ffn_dim: int
    max_source_positions: int

    def __post_init__(self) -> None:
        wrong = {name: size for name, size in vars(self).items() if size < 1}
        if wrong:
            raise ConfigError(f"A Whisper encoder cannot have {wrong}.")
        if self.d_model % self.encoder_attention_heads:
            raise ConfigError(
                f"Whisper's d_model {self.d_model} is no multiple of its"
                f" {self.encoder_attention_heads} heads."
            )

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.d_model // self.encoder_attention_heads

    @property
    def mel_frames(self) -> int:
        """Mel frames of a whole input: twice the positions (3000 for 30 s)."""
        return 2 * self.max_source_positions


def spec_from_config(config: ConfigReader) -> WhisperSpec:
    """Sizes from a config.json: Hugging Face's, or OpenAI's dimensions under `audio_encoder`.

    Raises:
        ConfigError: a number is missing or wrong, or another computation is asked for.
    """
    if "audio_encoder" in config:
        return spec_from_dims(config.section("audio_encoder"))
    config.require("activation_function", "gelu")
    config.require("scale_embedding", False)
    return WhisperSpec(
        num_mel_bins=config.integer("num_mel_bins"),
        d_model=config.integer("d_model"),
        encoder_layers=config.integer("encoder_layers"),
        encoder_attention_heads=config.integer("encoder_attention_heads"),
        encoder_ffn_dim=config.integer("encoder_ffn_dim"),
        max_source_positions=config.integer("max_source_positions"),
    )


def spec_from_dims(dims: ConfigReader) -> WhisperSpec:
    """Sizes from OpenAI's dimensions, whose MLPs are four times as wide as the model."""
    width = dims.integer("n_audio_state")
    return WhisperSpec(
        num_mel_bins=dims.integer("n_mels"),
        d_model=width,
        encoder_layers=dims.integer("n_audio_layer"),
        encoder_attention_heads=dims.integer("n_audio_head"),
        encoder_ffn_dim=4 * width,
        max_source_positions=dims.integer("n_audio_ctx"),
    )


@dataclass(frozen=True)
class WhisperNames:
    """What a layout calls the tensors; those of a layer stand behind "{layers}.{i}."."""

    prefix: str
    positions: str
    layers: str
    attention_norm: str
    q: str
    k: str
    v: str
    out: str
    mlp_norm: str
    fc1: str
    fc2: str
    ln_post: str

    def tensor(self, name: str) -> str:
        """The full name of a tensor of the encoder."""
        return self.prefix + name

    def layer(self, i: int, name: str) -> str:
        """The full name of a part of layer i."""
        return f"{self.prefix}{self.layers}.{i}.{name}"


def _hugging_face(prefix: str) -> WhisperNames:
    return WhisperNames(
        prefix=prefix,
        positions="embed_positions.weight",
        layers="layers",
        attention_norm="self_attn_layer_norm",
        q="self_attn.q_proj",
        k="self_attn.k_proj",
        v="self_attn.v_proj",
        out="self_attn.out_proj",
        mlp_norm="final_layer_norm",
        fc1="fc1",
        fc2="fc2",
        ln_post="layer_norm",
    )


def _openai(prefix: str) -> WhisperNames:
    return WhisperNames(
        prefix=prefix,
        positions="positional_embedding",
        layers="blocks",
        attention_norm="attn_ln",
        q="attn.query",
        k="attn.key",
        v="attn.value",
        out="attn.out",
        mlp_norm="mlp_ln",
        fc1="mlp.0",
        fc2="mlp.2",
        ln_post="ln_post",
    )


LAYOUTS = (
    _hugging_face("model.encoder."),
    _hugging_face("encoder."),
    _openai("encoder."),
    _openai("model_state_dict.encoder."),
)
"""Whisper with a language-model head, without one, and OpenAI's, alone and in its own file."""


def names_in(store: Container[str], where: str) -> WhisperNames:
    """The layout that a store has; CheckpointError when it is none of them."""
    for names in LAYOUTS:
        if names.tensor(names.positions) in store and names.tensor("conv1.weight") in store:
            return names
    known = ", ".join(names.tensor(names.positions) for names in LAYOUTS)
    raise CheckpointError(f"{where} holds no Whisper encoder: none of {known} is there.")
