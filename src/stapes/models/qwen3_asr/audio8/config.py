"""Audio8-ASR's config.json: a Qwen2 decoder's, with the encoder in a section of its own."""

from __future__ import annotations

from dataclasses import dataclass

from stapes.decoder import DecoderNames, DecoderSpec
from stapes.errors import ConfigError
from stapes.models.config_reader import ConfigReader
from stapes.models.qwen3_asr.audio8.assumptions import ASSUMED
from stapes.models.qwen3_asr.config import (
    MAX_LAYERS,
    EncoderNames,
    EncoderSpec,
    Qwen3AsrConfig,
    encoder_spec,
)
from stapes.text.eos import eos_token_ids
from stapes.text.folder import Folder
from stapes.text.json_files import read_json_object
from stapes.text.tokenizer import Tokenizer

_AUDIO = "qwen3_asr_audio_config"
_TOWER = "qwen3_asr_mlp_tower"

ENCODER_NAMES = EncoderNames("audio_encoder", "audio_encoder.proj1", "audio_encoder.proj2")
DECODER_NAMES = DecoderNames(
    "language_model.model.embed_tokens.weight",
    "language_model.model.norm.weight",
    "language_model.lm_head.weight",
    "language_model.model.layers",
)


@dataclass(frozen=True)
class AdapterSpec:
    """What lies between encoder and decoder.

    Attributes:
        input_size: width of the encoder's rows.
        output_size: width of the decoder's.
        mlp_tower_layers: residual blocks.
        mlp_tower_hidden_size: width of a block's hidden layer.
        merge_factor: pairs of mel frames that one row of the result stands for.
    """

    input_size: int
    output_size: int
    mlp_tower_layers: int
    mlp_tower_hidden_size: int
    merge_factor: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ConfigError(f"The adapter's {name} is {value}, but must be positive.")

    def tokens(self, frames: int) -> int:
        """Rows of the result for so many mel frames: 12.5 a second, at least one."""
        return max((frames + 1) // 2 // self.merge_factor, 1)

    def sizes(self) -> dict[str, int]:
        """What config.json says of it, by shorter names."""
        names = ("mlp_tower_layers", "mlp_tower_hidden_size", "merge_factor")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Audio8Config(Qwen3AsrConfig):
    """All that a checkpoint's files say about the model, but for its weights."""

    adapter: AdapterSpec


def read_config(folder: Folder, tokenizer: Tokenizer) -> Audio8Config:
    """Read a checkpoint folder's configuration files.

    Raises:
        ConfigError: a file or value is missing, malformed, or asks for what is not supported.
    """
    values = read_json_object(folder / "config.json")
    root = ConfigReader(values, "config.json")
    if _AUDIO not in root:
        raise ConfigError(
            f"config.json has no section {_AUDIO}: of the models of type 'arkasr', only those with "
            "Qwen3-ASR's audio encoder (Audio8-ASR) are supported, not those with Whisper's."
        )
    encoder = encoder_spec(root.section(_AUDIO))
    decoder = _decoder_spec(root, eos_token_ids(folder, tokenizer, values))
    return Audio8Config(
        encoder=encoder,
        encoder_names=ENCODER_NAMES,
        decoder=decoder,
        audio_token_id=root.integer("audio_token_id"),
        adapter=_adapter_spec(root, encoder, decoder),
    )


def _adapter_spec(root: ConfigReader, encoder: EncoderSpec, decoder: DecoderSpec) -> AdapterSpec:
    def integer(key: str, default: int) -> int:
        return root.integer(key, at_most=MAX_LAYERS) if key in root else default

    hidden = f"{_TOWER}_hidden_size"  # the publisher's code takes 0 for none
    hidden_size = root.integer(hidden) if hidden in root else 0
    return AdapterSpec(
        input_size=encoder.output_dim,
        output_size=decoder.hidden_size,
        mlp_tower_layers=integer(f"{_TOWER}_layers", ASSUMED.mlp_tower_layers),
        mlp_tower_hidden_size=hidden_size or ASSUMED.mlp_tower_ratio * encoder.output_dim,
        merge_factor=integer("merge_factor", ASSUMED.merge_factor),
    )


def _decoder_spec(root: ConfigReader, eos: frozenset[int]) -> DecoderSpec:
    layers = root.integer("num_hidden_layers", at_most=MAX_LAYERS)
    root.require("hidden_act", "silu")
    root.require("use_sliding_window", False)
    root.require("layer_types", ["full_attention"] * max(layers, 0))
    hidden, heads = root.integer("hidden_size"), root.integer("num_attention_heads")
    if "head_dim" not in root and (heads < 1 or hidden % heads):
        raise ConfigError(f"A hidden_size of {hidden} does not divide into {heads} heads.")
    return DecoderSpec(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=root.integer("num_key_value_heads"),
        head_dim=root.integer("head_dim") if "head_dim" in root else hidden // heads,
        intermediate_size=root.integer("intermediate_size"),
        vocab_size=root.integer("vocab_size"),
        max_position_embeddings=root.integer("max_position_embeddings"),
        rms_norm_eps=root.number("rms_norm_eps"),
        rope_theta=root.rope_theta(),
        tie_word_embeddings=root.boolean("tie_word_embeddings", ASSUMED.tie_word_embeddings),
        attention_bias=True,
        qk_norm=False,
        eos_token_ids=eos,
        names=DECODER_NAMES,
    )
