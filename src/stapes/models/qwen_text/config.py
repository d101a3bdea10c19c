"""The configuration of a Hugging Face folder: model_type qwen2 or qwen3."""

from __future__ import annotations

from typing import Any

from stapes.decoder import DecoderSpec
from stapes.errors import ConfigError
from stapes.models.config_reader import ConfigReader
from stapes.models.decoder_config import decoder_spec
from stapes.text.eos import eos_token_ids
from stapes.text.folder import Folder
from stapes.text.json_files import read_json_object
from stapes.text.tokenizer import Tokenizer

KINDS = ("qwen2", "qwen3")  # model_type here, general.architecture in GGUF
PREFIX_IDS = "stapes_prefix_ids"  # our own key, in the config.json that stands for a GGUF file's


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
    eos = eos_token_ids(folder, tokenizer, values)
    return decoder_spec(ConfigReader(values, "config.json"), kind, eos)


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
