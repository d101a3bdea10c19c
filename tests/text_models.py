"""Tiny random Qwen2 and Qwen3 text models, as Hugging Face folders and as GGUF files.

Names and metadata in GGUF are the gguf package's: what the package's own tables are held against.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray
from safetensors.numpy import save_file

from text.bpe_folder import NAMES, PLAIN_NAMES, control_ids, trained, write_json, write_new_layout

F32 = NDArray[np.float32]
Tensors = dict[str, F32]
Types = Callable[[str], str]

CONTROL = control_ids()
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
)
ARCHITECTURES = {"qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}


@dataclass(frozen=True)
class Sizes:
    """A text model; fields have the names of the Hugging Face configuration."""

    model_type: str = "qwen3"
    hidden_size: int = 64
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    intermediate_size: int = 96
    vocab_size: int = 512
    max_position_embeddings: int = 4096
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    tie_word_embeddings: bool = True


QWEN3 = Sizes()
QWEN2 = Sizes("qwen2", num_attention_heads=2)
KINDS = {
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "qwen2-untied": dataclasses.replace(QWEN2, tie_word_embeddings=False),
    "qwen3-untied": dataclasses.replace(QWEN3, tie_word_embeddings=False),
}


def hf_config(sizes: Sizes) -> dict[str, Any]:
    values = dataclasses.asdict(sizes)
    theta = values.pop("rope_theta")
    if (
        sizes.model_type == "qwen2"
        and sizes.head_dim * sizes.num_attention_heads == sizes.hidden_size
    ):
        del values["head_dim"]
    return {
        **values,
        "eos_token_id": CONTROL["<|im_end|>"],
        "hidden_act": "silu",
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "use_sliding_window": False,
    }


def shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a checkpoint, written down here once more."""
    hidden, inter, d = sizes.hidden_size, sizes.intermediate_size, sizes.head_dim
    q, kv = sizes.num_attention_heads * d, sizes.num_key_value_heads * d
    layer = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inter, hidden),
        "mlp.up_proj.weight": (inter, hidden),
        "mlp.down_proj.weight": (hidden, inter),
    }
    if sizes.model_type == "qwen2":
        layer |= {f"self_attn.{x}_proj.bias": (q if x == "q" else kv,) for x in "qkv"}
    else:
        layer |= {f"self_attn.{x}_norm.weight": (d,) for x in "qk"}
    found = {
        "model.embed_tokens.weight": (sizes.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not sizes.tie_word_embeddings:
        found["lm_head.weight"] = (sizes.vocab_size, hidden)
    for i in range(sizes.num_hidden_layers):
        found |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    return found


def random_tensors(sizes: Sizes, seed: int = 0) -> Tensors:
    """Weights with which ids change along the answer and with the prompt."""
    rng = np.random.default_rng(seed)
    tensors: Tensors = {}
    for name, shape in shapes(sizes).items():
        if name.endswith("bias"):
            values = rng.normal(0, 0.5, shape)
        elif len(shape) == 2:
            values = rng.normal(0, 1.6 / np.sqrt(shape[1]) if ".layers." in name else 0.1, shape)
        else:
            low, high = (2, 4) if name.endswith(("q_norm.weight", "k_norm.weight")) else (0.5, 1.5)
            values = rng.uniform(low, high, shape)
        tensors[name] = values.astype(np.float32)
    return tensors


def write_folder(folder: Path, sizes: Sizes, tensors: Tensors, **config: Any) -> Path:
    """config.json, model.safetensors and the tokenizer; a config value of None takes a key away."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {**hf_config(sizes), **config}
    write_json(folder / "config.json", {k: v for k, v in values.items() if v is not None})
    save_file(tensors, folder / "model.safetensors")
    return write_new_layout(folder)


# -- GGUF ----------------------------------------------------------------------------------------


def gguf_metadata(sizes: Sizes) -> dict[str, Any]:
    """What llama.cpp's converter writes for such a model. Lists become arrays."""
    vocab, merges = trained()
    pieces = sorted(vocab, key=vocab.__getitem__)
    padding = sizes.vocab_size - len(pieces) - len(NAMES)
    kinds = [4 if name in PLAIN_NAMES else 3 for name in NAMES]
    arch = sizes.model_type
    return {
        "general.type": "model",
        f"{arch}.block_count": sizes.num_hidden_layers,
        f"{arch}.context_length": sizes.max_position_embeddings,
        f"{arch}.embedding_length": sizes.hidden_size,
        f"{arch}.feed_forward_length": sizes.intermediate_size,
        f"{arch}.attention.head_count": sizes.num_attention_heads,
        f"{arch}.attention.head_count_kv": sizes.num_key_value_heads,
        f"{arch}.attention.key_length": sizes.head_dim,
        f"{arch}.attention.value_length": sizes.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": sizes.rms_norm_eps,
        f"{arch}.rope.freq_base": sizes.rope_theta,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [*pieces, *NAMES, *(f"[PAD{i}]" for i in range(padding))],
        "tokenizer.ggml.token_type": [1] * len(pieces) + kinds + [5] * padding,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        "tokenizer.ggml.eos_token_id": CONTROL["<|im_end|>"],
        "tokenizer.ggml.padding_token_id": CONTROL["<|endoftext|>"],
        "tokenizer.ggml.bos_token_id": CONTROL["<|endoftext|>"],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def stored(name: str, values: F32, kind: str) -> tuple[NDArray[Any], F32]:
    """Bytes of a tensor in a type, and the values that they stand for.

    The K types have no quantiser in Python: their blocks are random, of about the same size.
    """
    number = GGMLQuantizationType[kind]
    try:
        data = quantize(values, number)
    except NotImplementedError:
        data = _random_blocks(values, kind)
    return data, np.asarray(dequantize(data, number), np.float32).reshape(values.shape)


def _random_blocks(values: F32, kind: str) -> NDArray[np.uint8]:
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    rng = np.random.default_rng(values.size)
    data = rng.integers(0, 256, (len(values), values.shape[1] // block, size), dtype=np.uint8)
    spread = float(values.std())
    scales = {"Q6_K": {208: spread / 1300}, "Q4_K": {0: spread / 220, 2: spread / 50}}[kind]
    for place, scale in scales.items():
        data[..., place : place + 2] = np.float16([scale]).view(np.uint8)
    return data.reshape(len(values), -1)


def gguf_names(sizes: Sizes) -> dict[str, str]:
    """Checkpoint name -> the name that the gguf package gives it."""
    arch = ARCHITECTURES[sizes.model_type]
    table = gguf.get_tensor_name_map(arch, sizes.num_hidden_layers)
    return {n: table.get_name(n, (".weight", ".bias")) or n for n in shapes(sizes)}


def write_gguf(
    path: Path,
    sizes: Sizes,
    tensors: Tensors,
    types: Types = lambda name: "F32",
    *,
    metadata: Mapping[str, Any] | None = None,
    arch: str | None = None,
    rename: Mapping[str, str] | None = None,
    more: Tensors | None = None,
) -> Tensors:
    """Writes a file and returns the values that it holds, under the checkpoint's names.

    Vectors stay F32. `metadata` changes keys (None takes one away), `rename` tensors of the file
    (to "" takes one away), `more` are tensors beside the model's own.
    """
    writer = GGUFWriter(path, arch or sizes.model_type)
    for key, value in {**gguf_metadata(sizes), **(metadata or {})}.items():
        _add(writer, key, value)
    held: Tensors = {}
    for name, file_name in gguf_names(sizes).items():
        kind = types(file_name) if tensors[name].ndim == 2 else "F32"
        data, held[name] = stored(name, tensors[name], kind)
        if shown := (rename or {}).get(file_name, file_name):
            writer.add_tensor(shown, data, raw_dtype=GGMLQuantizationType[kind])
    for name, values in (more or {}).items():
        writer.add_tensor(name, values)
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    return held


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    adders: dict[type, Callable[[str, Any], None]] = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    if value is not None:
        adders[type(value)](key, value)
