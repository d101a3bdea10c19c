"""GGUF files of llama.cpp, architectures qwen2 and qwen3: metadata and tensor names.

Sources: ggml-org/llama.cpp's gguf-py/gguf/constants.py (keys and names) and its conversion
scripts. For these architectures rows of q and k are stored in the checkpoint's own order, for the
half-split RoPE that the decoder has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stapes.decoder import DecoderSpec, expected_tensors
from stapes.decoder.weights import Shapes
from stapes.errors import ConfigError
from stapes.graph import Engine
from stapes.models.config_reader import ConfigReader
from stapes.models.decoder_config import MAX_LAYERS, head_dim
from stapes.models.qwen_text.config import KINDS, to_config
from stapes.models.qwen_text.shown import shown_config
from stapes.models.source import Readers, checkpoint_readers
from stapes.options import RuntimeOptions
from stapes.system import default_threads
from stapes.tensors import check_tensors
from stapes.tensors.gguf import GgufStore, open_gguf
from stapes.text.folder import Folder, MemoryFolder
from stapes.text.gguf_tokenizer import gguf_end_ids, gguf_prefix_ids, tokenizer_from_gguf
from stapes.text.tokenizer import Tokenizer
from stapes.weights import TensorLike

#: Values of tokenizer.ggml.pre that mean Qwen2's split; the second one's regex is the same.
SPLITS = ("qwen2", "deepseek-r1-qwen")

#: Tokens that end an answer though a GGUF file has room for one id only: the files of the original
#: checkpoints name both, and llama.cpp, too, stops at them by their names.
END_NAMES = ("<|endoftext|>", "<|im_end|>")

#: The type of added tokens that are not special, as Hugging Face's files have it.
_USER_DEFINED = 4

_TOP = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

# Keys of an architecture that change what is computed, and the values that change nothing.
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (0.0, 1.0),
    "rope.scale_linear": (0.0, 1.0),
    "attention.sliding_window": (0,),
    "attention.causal": (True,),
    "attention.scale": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "logit_scale": (0.0, 1.0),
    "expert_count": (0,),
    "pooling_type": (0,),  # others make embeddings, not text
}


class GgufSource:
    """A GGUF file as the folder that it was made from (see `models.source.ModelSource`).

    Raises:
        ModelError: the file is missing, damaged, or says what is not supported.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store = store = open_gguf(path)  # read once: a header may hold 150,000 tokens
        self._tokenizer = tokenizer_from_gguf(store.metadata, path, SPLITS)
        spec = read_gguf_config(store, self._tokenizer)
        config = to_config(spec, gguf_prefix_ids(store.metadata, path))
        shown = shown_config(self._tokenizer, _user_defined(store.metadata))
        files = {"config.json": json.dumps(config), "tokenizer_config.json": json.dumps(shown)}
        template = store.metadata.get("tokenizer.chat_template")
        if isinstance(template, str):
            files["chat_template.jinja"] = template
        self.files: Folder = MemoryFolder(str(path), files)

    def tokenizer(self) -> Tokenizer:
        """See `ModelSource`."""
        return self._tokenizer

    def names_token(self, name: str) -> bool:
        """See `ModelSource`."""
        return self._tokenizer.has_control(name)

    def weight_files(self) -> tuple[Path, ...]:
        """See `ModelSource`."""
        return (self.path,)

    @contextmanager
    def readers(
        self, expected: Shapes, spec: DecoderSpec, options: RuntimeOptions
    ) -> Iterator[Readers]:
        """See `ModelSource`."""
        shapes = {gguf_name(name): shape for name, shape in expected.items()}
        check_tensors(self._store, shapes)
        engine = Engine(options.threads or default_threads())
        yield checkpoint_readers(GgufTensors(self._store, spec), engine, options)


class GgufTensors:
    """A GGUF file's tensors under the names that the decoder asks for."""

    def __init__(self, store: GgufStore, spec: DecoderSpec) -> None:
        self._store = store
        self._names = {name: gguf_name(name) for name in expected_tensors(spec)}

    def __getitem__(self, name: str) -> TensorLike:
        return self._store[self._names[name]]

    def release(self, name: str) -> None:
        """The tensor's pages are not needed any more."""
        self._store.release(self._names[name])


def gguf_name(name: str) -> str:
    """The name in GGUF of a tensor of the decoder, such as model.layers.0.mlp.up_proj.weight."""
    module, _, kind = name.rpartition(".")
    if module in _TOP:
        return f"{_TOP[module]}.{kind}"
    number, _, part = module.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{_LAYER[part]}.{kind}"


def read_gguf_config(store: GgufStore, tokenizer: Tokenizer) -> DecoderSpec:
    """The decoder that a file's metadata describes.

    Raises:
        ConfigError: a value is missing, malformed, or asks for what is not supported.
    """
    path, kind = store.files[0], _architecture(store)
    config = _section(store.metadata, kind, path)
    for key, neutral in _NEUTRAL.items():
        config.require(key, *neutral)
    hidden, heads = config.integer("embedding_length"), config.integer("attention.head_count")
    return DecoderSpec(
        hidden_size=hidden,
        num_hidden_layers=config.integer("block_count", at_most=MAX_LAYERS),
        num_attention_heads=heads,
        num_key_value_heads=config.integer("attention.head_count_kv", "attention.head_count"),
        head_dim=_head_dim(config, hidden, heads),
        intermediate_size=config.integer("feed_forward_length"),
        vocab_size=_vocab_size(config, store.metadata),
        max_position_embeddings=config.integer("context_length"),
        rms_norm_eps=config.number("attention.layer_norm_rms_epsilon"),
        rope_theta=config.number("rope.freq_base"),
        tie_word_embeddings=gguf_name("lm_head.weight") not in store,
        attention_bias=kind == "qwen2",
        qk_norm=kind == "qwen3",
        eos_token_ids=_ends(store.metadata, path, tokenizer),
    )


def _architecture(store: GgufStore) -> str:
    """The file's architecture, once it is clear that it holds a whole text model of ours."""
    path, general = store.files[0], _section(store.metadata, "general", store.files[0])
    general.require("type", "model")
    parts = store.metadata.get("split.count", 1)
    if parts not in (0, 1):
        raise ConfigError(f"{path} is one of {parts} parts of a model; merge them into one file.")
    kind = store.metadata.get("general.architecture")
    if kind not in KINDS:
        raise ConfigError(
            f"{path} says general.architecture {kind!r}; supported are {' and '.join(KINDS)}."
        )
    return str(kind)


def _section(metadata: Mapping[str, Any], name: str, path: Path) -> ConfigReader:
    """The keys that begin with `name.`, without that beginning."""
    start = f"{name}."
    values = {k.removeprefix(start): v for k, v in metadata.items() if k.startswith(start)}
    return ConfigReader(values, f"{path}'s {name}")


def _head_dim(config: ConfigReader, hidden: int, heads: int) -> int:
    """Keys and values have the same size, and RoPE turns all of it."""
    key = "attention.key_length"
    size = config.integer(key) if key in config else head_dim(hidden, heads)
    config.require("attention.value_length", size)
    config.require("rope.dimension_count", size)
    return size


def _vocab_size(config: ConfigReader, metadata: Mapping[str, Any]) -> int:
    """As many as the file has tokens; those that only pad the embedding are among them."""
    size = len(metadata["tokenizer.ggml.tokens"])
    config.require("vocab_size", size)
    return size


def _ends(metadata: Mapping[str, Any], path: Path, tokenizer: Tokenizer) -> frozenset[int]:
    named = {tokenizer.token_id(name) for name in END_NAMES if tokenizer.has_control(name)}
    return gguf_end_ids(metadata, path) | named


def _user_defined(metadata: Mapping[str, Any]) -> frozenset[int]:
    types = metadata["tokenizer.ggml.token_type"]
    return frozenset(i for i, kind in enumerate(types) if kind == _USER_DEFINED)
