"""Writes folders with tiny random Qwen3-ASR checkpoints, in both layouts, with NumPy alone.

Names and shapes are those of the published checkpoints, written down here once more: this is what
the package's own tables are held against.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from text.bpe_folder import control_ids, write_json, write_new_layout, write_old_layout

F32 = NDArray[np.float32]
Tensors = dict[str, F32]
Layout = Literal["hf", "original"]

CONTROL = control_ids()
EOS_IDS = (CONTROL["<|endoftext|>"], CONTROL["<|im_end|>"])


@dataclass(frozen=True)
class Sizes:
    """A model small enough for a test; fields have the names of the configuration."""

    d_model: int = 64
    encoder_layers: int = 2
    encoder_attention_heads: int = 2
    encoder_ffn_dim: int = 96
    downsample_hidden_size: int = 8
    num_mel_bins: int = 128
    n_window_infer: int = 800
    hidden_size: int = 64
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    intermediate_size: int = 96
    vocab_size: int = 512
    max_position_embeddings: int = 65536
    rope_theta: float = 1e6
    tied: bool = True


def audio_config(sizes: Sizes) -> dict[str, Any]:
    names = (
        "d_model",
        "encoder_layers",
        "encoder_attention_heads",
        "encoder_ffn_dim",
        "downsample_hidden_size",
        "num_mel_bins",
        "n_window_infer",
    )
    return {
        **{name: getattr(sizes, name) for name in names},
        "activation_function": "gelu",
        "model_type": "qwen3_asr_encoder",
        "n_window": 50,
        "output_dim": sizes.hidden_size,
        "scale_embedding": False,
    }


def text_config(sizes: Sizes) -> dict[str, Any]:
    names = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
    )
    return {
        **{name: getattr(sizes, name) for name in names},
        "attention_bias": False,
        "hidden_act": "silu",
        "model_type": "qwen3",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": sizes.rope_theta, "rope_type": "default"},
        "tie_word_embeddings": sizes.tied,
    }


def hf_config(sizes: Sizes) -> dict[str, Any]:
    """config.json as transformers >= 5.13 writes it."""
    return {
        "architectures": ["Qwen3ASRForConditionalGeneration"],
        "audio_config": audio_config(sizes),
        "audio_token_id": CONTROL["<|audio_pad|>"],
        "eos_token_id": list(EOS_IDS),
        "model_type": "qwen3_asr",
        "pad_token_id": CONTROL["<|im_end|>"],
        "text_config": text_config(sizes),
        "tie_word_embeddings": sizes.tied,
        "timestamp_token_id": CONTROL["<timestamp>"],
    }


def original_config(hf: dict[str, Any]) -> dict[str, Any]:
    """The same model's config.json as it was first published: nested, with multimodal RoPE."""
    hf = copy.deepcopy(hf)
    audio, text = hf["audio_config"], hf["text_config"]
    audio |= {"model_type": "qwen3_asr_audio_encoder", "max_source_positions": 1500}
    text["rope_theta"] = text.pop("rope_parameters")["rope_theta"]
    half = text["head_dim"] // 2
    sections = [half - 2 * (half // 3), half // 3, half // 3]
    text["rope_scaling"] = {"interleaved": True, "mrope_section": sections, "rope_type": "default"}
    text["tie_word_embeddings"] = hf["tie_word_embeddings"]
    thinker = {
        "audio_config": audio,
        "audio_end_token_id": CONTROL["<|audio_end|>"],
        "audio_start_token_id": CONTROL["<|audio_start|>"],
        "audio_token_id": hf["audio_token_id"],
        "model_type": "qwen3_asr_thinker",
        "text_config": text,
    }
    return {
        "architectures": ["Qwen3ASRForConditionalGeneration"],
        "model_type": "qwen3_asr",
        "support_languages": ["English", "German"],
        "thinker_config": thinker,
    }


_RENAMED = (
    ("model.audio_tower.", "thinker.audio_tower."),
    ("model.multi_modal_projector.linear_1.", "thinker.audio_tower.proj1."),
    ("model.multi_modal_projector.linear_2.", "thinker.audio_tower.proj2."),
    ("model.language_model.", "thinker.model."),
    ("lm_head.", "thinker.lm_head."),
)


def original_name(name: str) -> str:
    """A tensor's name in the original layout."""
    for hf, original in _RENAMED:
        if name.startswith(hf):
            return original + name[len(hf) :]
    raise AssertionError(name)


def original_tensors(tensors: Tensors) -> Tensors:
    """The original layout's tensors; it holds a head even when that is the embedding again."""
    renamed = {original_name(name): values for name, values in tensors.items()}
    renamed.setdefault("thinker.lm_head.weight", renamed["thinker.model.embed_tokens.weight"])
    return renamed


# -- tensors -------------------------------------------------------------------------------------


def shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Every tensor of the -hf layout."""
    return {**_encoder_shapes(sizes), **_decoder_shapes(sizes)}


def _encoder_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    d, channels, ffn = sizes.d_model, sizes.downsample_hidden_size, sizes.encoder_ffn_dim
    mels = -(-sizes.num_mel_bins // 8)
    tower, projector = "model.audio_tower", "model.multi_modal_projector"
    found: dict[str, tuple[int, ...]] = {f"{tower}.conv_out.weight": (d, channels * mels)}
    affine: dict[str, tuple[int, ...]] = {
        f"{tower}.conv2d1": (channels, 1, 3, 3),
        f"{tower}.conv2d2": (channels, channels, 3, 3),
        f"{tower}.conv2d3": (channels, channels, 3, 3),
        f"{tower}.ln_post": (d,),
        f"{projector}.linear_1": (d, d),
        f"{projector}.linear_2": (sizes.hidden_size, d),
    }
    for i in range(sizes.encoder_layers):
        layer = f"{tower}.layers.{i}"
        affine |= {f"{layer}.self_attn.{x}_proj": (d, d) for x in ("q", "k", "v", "out")}
        affine |= {f"{layer}.self_attn_layer_norm": (d,), f"{layer}.final_layer_norm": (d,)}
        affine |= {f"{layer}.fc1": (ffn, d), f"{layer}.fc2": (d, ffn)}
    for name, shape in affine.items():
        found |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return found


def _decoder_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    hidden, inter, d = sizes.hidden_size, sizes.intermediate_size, sizes.head_dim
    q, kv = sizes.num_attention_heads * d, sizes.num_key_value_heads * d
    model = "model.language_model"
    found: dict[str, tuple[int, ...]] = {
        f"{model}.embed_tokens.weight": (sizes.vocab_size, hidden),
        f"{model}.norm.weight": (hidden,),
    }
    if not sizes.tied:
        found["lm_head.weight"] = (sizes.vocab_size, hidden)
    for i in range(sizes.num_hidden_layers):
        parts = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (q, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, q),
            "self_attn.q_norm": (d,),
            "self_attn.k_norm": (d,),
            "mlp.gate_proj": (inter, hidden),
            "mlp.up_proj": (inter, hidden),
            "mlp.down_proj": (hidden, inter),
        }
        found |= {f"{model}.layers.{i}.{name}.weight": shape for name, shape in parts.items()}
    return found


def random_tensors(sizes: Sizes, seed: int = 0) -> Tensors:
    """Weights with which ids change along the answer and with the audio."""
    rng = np.random.default_rng(seed)
    return {name: random_values(rng, name, shape) for name, shape in shapes(sizes).items()}


def random_values(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> F32:
    """One tensor: scaled by fan-in, but for embedding and head (0.02), norms and biases."""
    if len(shape) > 1:
        fan_in = int(np.prod(shape[1:]))
        rows_of_ids = name.endswith(("embed_tokens.weight", "lm_head.weight"))
        scale = 0.02 if rows_of_ids else 1.6 / np.sqrt(fan_in)
        return (rng.standard_normal(shape) * scale).astype(np.float32)
    if name.endswith("language_model.norm.weight"):  # logits would be tiny
        return rng.uniform(4, 8, shape).astype(np.float32)
    if name.endswith(("q_norm.weight", "k_norm.weight")):  # sharp attention, or ids hardly change
        return rng.uniform(2, 4, shape).astype(np.float32)
    if name.endswith(".weight"):
        return rng.uniform(0.7, 1.3, shape).astype(np.float32)
    return rng.uniform(-0.3, 0.3, shape).astype(np.float32)


# -- files ---------------------------------------------------------------------------------------


def bf16_words(values: F32) -> NDArray[np.uint16]:
    """Rounded to nearest even, by hand."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def bf16_rounded(tensors: Tensors) -> Tensors:
    """What a bf16 file of these tensors holds, widened."""
    return {
        name: (bf16_words(values).astype(np.uint32) << 16).view(np.float32)
        for name, values in tensors.items()
    }


def write_safetensors(path: Path, tensors: Tensors, dtype: str = "F32") -> None:
    """One file of F32, F16 or BF16 tensors."""
    converted = {"F32": np.float32, "F16": np.float16}
    header: dict[str, Any] = {}
    chunks: list[bytes] = []
    end = 0
    for name, values in tensors.items():
        words = bf16_words(values) if dtype == "BF16" else values.astype(converted[dtype])
        begin, end = end, end + words.nbytes
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [begin, end]}
        chunks.append(words.tobytes())
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(chunks))


def write_shards(folder: Path, tensors: Tensors, count: int) -> list[str]:
    """The tensors dealt over `count` files with an index; returns the file names."""
    files = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    weight_map = {name: files[i % count] for i, name in enumerate(sorted(tensors))}
    for file in files:
        part = {name: tensors[name] for name, home in weight_map.items() if home == file}
        write_safetensors(folder / file, part)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    write_json(folder / "model.safetensors.index.json", index)
    return files


def write_original(folder: Path, config: dict[str, Any], tensors: Tensors, dtype: str) -> Path:
    """The -hf layout's config and tensors, as a folder of the first publication."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", original_config(config))
    write_json(folder / "generation_config.json", {"eos_token_id": list(EOS_IDS)})
    write_safetensors(folder / "model.safetensors", original_tensors(tensors), dtype)
    return write_old_layout(folder)


def write_hf(folder: Path, config: dict[str, Any], tensors: Tensors, dtype: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    write_safetensors(folder / "model.safetensors", tensors, dtype)
    return write_new_layout(folder)


def write_checkpoint(
    folder: Path,
    sizes: Sizes | None = None,
    *,
    layout: Layout = "hf",
    seed: int = 0,
    dtype: str = "F32",
    config: dict[str, Any] | None = None,
    tensors: Tensors | None = None,
) -> Path:
    """A whole folder: config, weights, tokenizer.

    `config` and `tensors` take the place of the ones made from `sizes` and `seed`, in the names
    of the -hf layout.
    """
    sizes = Sizes() if sizes is None else sizes
    config = hf_config(sizes) if config is None else config
    tensors = random_tensors(sizes, seed) if tensors is None else tensors
    write = write_original if layout == "original" else write_hf
    return write(folder, config, tensors, dtype)
