"""A checkpoint's configuration, in either of its two layouts.

*Original* (as first published): everything under `thinker_config`, tensors named `thinker.*`.
*-hf* (transformers >= 5.13): flat, tensors named `model.*`. Only the checkpoint's own numbers
count: the defaults of the reference classes differ from what was published.
"""

from __future__ import annotations

from dataclasses import dataclass

from stapes.decoder import DecoderNames, DecoderSpec
from stapes.errors import ConfigError
from stapes.models.config_reader import ConfigReader
from stapes.text.eos import eos_token_ids
from stapes.text.folder import Folder
from stapes.text.json_files import read_json_object
from stapes.text.tokenizer import Tokenizer

CHUNK_FRAMES = 100  # mel frames that the conv stem reads at a time: 2 * n_window, 1 s
CHUNK_TOKENS = 13  # what a whole chunk becomes: three halvings, rounded up

# No real model comes near these; a damaged file is refused before it costs time and memory.
MAX_LAYERS = 1000
_MAX_WINDOW_FRAMES = 1_000_000


@dataclass(frozen=True)
class EncoderSpec:
    """The audio encoder. Fields have the names of the Hugging Face configuration."""

    d_model: int
    encoder_layers: int
    encoder_attention_heads: int
    encoder_ffn_dim: int
    output_dim: int
    num_mel_bins: int
    downsample_hidden_size: int
    n_window_infer: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ConfigError(f"The encoder's {name} is {value}, but must be positive.")
        heads = self.encoder_attention_heads
        if self.d_model % heads or self.d_model % 2 or self.d_model < 4:
            raise ConfigError(
                f"The encoder's d_model is {self.d_model}, which is not even or does "
                f"not divide into {heads} heads."
            )
        if self.n_window_infer % CHUNK_FRAMES:
            raise ConfigError(
                f"The encoder's n_window_infer is {self.n_window_infer}, but must be a "
                f"multiple of {CHUNK_FRAMES}."
            )

    @property
    def head_dim(self) -> int:
        """Size of an attention head."""
        return self.d_model // self.encoder_attention_heads

    @property
    def window_tokens(self) -> int:
        """Tokens among which attention is confined: 104 (8 s) in the published models."""
        return CHUNK_TOKENS * (self.n_window_infer // CHUNK_FRAMES)


@dataclass(frozen=True)
class EncoderNames:
    """Prefixes of the encoder's tensors."""

    tower: str
    projector_1: str
    projector_2: str


@dataclass(frozen=True)
class Qwen3AsrConfig:
    """All that a checkpoint's files say about the model, but for its weights."""

    encoder: EncoderSpec
    encoder_names: EncoderNames
    decoder: DecoderSpec
    audio_token_id: int


#: Tensor names of the two layouts: the encoder's and the decoder's.
LAYOUT_ORIGINAL = (
    EncoderNames("thinker.audio_tower", "thinker.audio_tower.proj1", "thinker.audio_tower.proj2"),
    DecoderNames(
        "thinker.model.embed_tokens.weight",
        "thinker.model.norm.weight",
        "thinker.lm_head.weight",
        "thinker.model.layers",
    ),
)
LAYOUT_HF = (
    EncoderNames(
        "model.audio_tower",
        "model.multi_modal_projector.linear_1",
        "model.multi_modal_projector.linear_2",
    ),
    DecoderNames(
        "model.language_model.embed_tokens.weight",
        "model.language_model.norm.weight",
        "lm_head.weight",
        "model.language_model.layers",
    ),
)


def read_config(folder: Folder, tokenizer: Tokenizer) -> Qwen3AsrConfig:
    """Read a checkpoint folder's configuration files.

    Raises:
        ConfigError: a file or value is missing, malformed, or asks for what is not supported.
    """
    values = read_json_object(folder / "config.json")
    root = ConfigReader(values, "config.json")
    original = "thinker_config" in root
    inner = root.section("thinker_config") if original else root
    encoder_names, decoder_names = LAYOUT_ORIGINAL if original else LAYOUT_HF
    return Qwen3AsrConfig(
        encoder=encoder_spec(inner.section("audio_config")),
        encoder_names=encoder_names,
        decoder=decoder_spec(
            inner.section("text_config"),
            decoder_names,
            tied=_tied(root, inner),
            eos=eos_token_ids(folder, tokenizer, values),
        ),
        audio_token_id=inner.integer("audio_token_id"),
    )


def _tied(root: ConfigReader, inner: ConfigReader) -> bool:
    """The tie flag: the outermost section that has one rules."""
    for section in (root, inner, inner.section("text_config")):
        if "tie_word_embeddings" in section:
            return section.boolean("tie_word_embeddings")
    raise ConfigError(
        "config.json does not say whether the head is tied: tie_word_embeddings is missing."
    )


def encoder_spec(audio: ConfigReader) -> EncoderSpec:
    """The encoder that a section of config.json describes. Raises ConfigError."""
    audio.integer("n_window")  # must be there: the reference class has another default
    audio.require("n_window", CHUNK_FRAMES // 2)
    audio.require("activation_function", "gelu")
    audio.require("scale_embedding", False)
    return EncoderSpec(
        d_model=audio.integer("d_model", "hidden_size"),
        encoder_layers=audio.integer("encoder_layers", "num_hidden_layers", at_most=MAX_LAYERS),
        encoder_attention_heads=audio.integer("encoder_attention_heads", "num_attention_heads"),
        encoder_ffn_dim=audio.integer("encoder_ffn_dim", "intermediate_size"),
        output_dim=audio.integer("output_dim"),
        num_mel_bins=audio.integer("num_mel_bins"),
        downsample_hidden_size=audio.integer("downsample_hidden_size"),
        n_window_infer=audio.integer("n_window_infer", at_most=_MAX_WINDOW_FRAMES),
    )


def decoder_spec(
    text: ConfigReader, names: DecoderNames, tied: bool, eos: frozenset[int]
) -> DecoderSpec:
    """The decoder that a text_config describes; ConfigError for what is not supported."""
    text.require("hidden_act", "silu")
    text.require("use_sliding_window", False)
    return DecoderSpec(
        hidden_size=text.integer("hidden_size"),
        num_hidden_layers=text.integer("num_hidden_layers", at_most=MAX_LAYERS),
        num_attention_heads=text.integer("num_attention_heads"),
        num_key_value_heads=text.integer("num_key_value_heads"),
        head_dim=text.integer("head_dim"),
        intermediate_size=text.integer("intermediate_size"),
        vocab_size=text.integer("vocab_size"),
        max_position_embeddings=text.integer("max_position_embeddings"),
        rms_norm_eps=text.number("rms_norm_eps"),
        rope_theta=text.rope_theta(),
        tie_word_embeddings=tied,
        attention_bias=text.boolean("attention_bias", default=False),
        qk_norm=True,
        eos_token_ids=eos,
        names=names,
    )
