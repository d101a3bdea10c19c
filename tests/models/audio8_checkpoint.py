"""Writes folders with tiny random Audio8-ASR checkpoints, with NumPy alone.

Names and shapes are those of the published checkpoint, written down here once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints import Tensors, write_safetensors
from text.bpe_folder import added, byte_level_spec, trained, write_json

NAMES = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|user|>",
    "<|assistant|>",
    "<|begin_of_audio|>",
    "<|audio|>",
    "<|end_of_audio|>",
)
CONTROL = {name: len(trained()[0]) + i for i, name in enumerate(NAMES)}
END = CONTROL["<|im_end|>"]


@dataclass(frozen=True)
class Sizes:
    """A model small enough for a test; fields have the names of the configuration."""

    d_model: int = 32
    encoder_layers: int = 1
    encoder_attention_heads: int = 2
    encoder_ffn_dim: int = 48
    output_dim: int = 40
    num_mel_bins: int = 128
    downsample_hidden_size: int = 4
    n_window_infer: int = 800
    tower_layers: int = 2
    tower_hidden_size: int = 72
    merge_factor: int = 4
    hidden_size: int = 64
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    intermediate_size: int = 96
    vocab_size: int = 512
    max_position_embeddings: int = 4096
    tied: bool = True


PUBLISHED = Sizes(
    896, 18, 14, 3584, 1024, 128, 480, 800, 4, 4096, 4, 512, 8, 8, 8, 1408, 151936, 32768
)


def config(sizes: Sizes) -> dict[str, Any]:
    """config.json: the decoder's own, flat, with the encoder in a section."""
    encoder = (
        "d_model",
        "encoder_layers",
        "encoder_attention_heads",
        "encoder_ffn_dim",
        "output_dim",
        "num_mel_bins",
        "downsample_hidden_size",
        "n_window_infer",
    )
    decoder = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
        "merge_factor",
    )
    return {
        **{name: getattr(sizes, name) for name in decoder},
        "architectures": ["ArkasrForConditionalGeneration"],
        "audio_token_id": CONTROL["<|audio|>"],
        "eos_token_id": END,
        "hidden_act": "silu",
        "layer_types": ["full_attention"] * sizes.num_hidden_layers,
        "model_type": "arkasr",
        "pad_token_id": CONTROL["<|endoftext|>"],
        "qwen3_asr_audio_config": {
            **{name: getattr(sizes, name) for name in encoder},
            "activation_function": "gelu",
            "n_window": 50,
            "scale_embedding": False,
        },
        "qwen3_asr_mlp_tower_hidden_size": sizes.tower_hidden_size,
        "qwen3_asr_mlp_tower_layers": sizes.tower_layers,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": sizes.tied,
        "use_sliding_window": False,
    }


def shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint."""
    return {**_tower(sizes), **_adapter(sizes), **_decoder(sizes)}


def _tower(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    d, channels, ffn = sizes.d_model, sizes.downsample_hidden_size, sizes.encoder_ffn_dim
    found: dict[str, tuple[int, ...]] = {
        "audio_encoder.conv_out.weight": (d, channels * sizes.num_mel_bins // 8)
    }
    affine: dict[str, tuple[int, ...]] = {
        "conv2d1": (channels, 1, 3, 3),
        "conv2d2": (channels, channels, 3, 3),
        "conv2d3": (channels, channels, 3, 3),
        "ln_post": (d,),
        "proj1": (d, d),
        "proj2": (sizes.output_dim, d),
    }
    for i in range(sizes.encoder_layers):
        layer = f"layers.{i}"
        affine |= {f"{layer}.self_attn.{x}_proj": (d, d) for x in ("q", "k", "v", "out")}
        affine |= {f"{layer}.self_attn_layer_norm": (d,), f"{layer}.final_layer_norm": (d,)}
        affine |= {f"{layer}.fc1": (ffn, d), f"{layer}.fc2": (d, ffn)}
    return found | _with_biases({f"audio_encoder.{name}": s for name, s in affine.items()})


def _adapter(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    width, hidden = sizes.output_dim, sizes.tower_hidden_size
    affine: dict[str, tuple[int, ...]] = {
        "audio_mlp_tower.final_norm": (width,),
        "audio_projector.0": (width,),
        "audio_projector.1": (sizes.hidden_size, width),
    }
    for i in range(sizes.tower_layers):
        block = f"audio_mlp_tower.layers.{i}"
        affine |= {f"{block}.norm": (width,)}
        affine |= {f"{block}.fc1": (hidden, width), f"{block}.fc2": (width, hidden)}
    return _with_biases(affine)


def _decoder(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    hidden, inter = sizes.hidden_size, sizes.intermediate_size
    kv = sizes.num_key_value_heads * hidden // sizes.num_attention_heads
    model = "language_model.model"
    found: dict[str, tuple[int, ...]] = {
        f"{model}.embed_tokens.weight": (sizes.vocab_size, hidden),
        f"{model}.norm.weight": (hidden,),
    }
    if not sizes.tied:
        found["language_model.lm_head.weight"] = (sizes.vocab_size, hidden)
    for i in range(sizes.num_hidden_layers):
        layer = f"{model}.layers.{i}"
        found |= _with_biases(
            {f"{layer}.self_attn.{x}_proj": (hidden if x == "q" else kv, hidden) for x in "qkv"}
        )
        parts = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (inter, hidden),
            "mlp.up_proj": (inter, hidden),
            "mlp.down_proj": (hidden, inter),
        }
        found |= {f"{layer}.{name}.weight": shape for name, shape in parts.items()}
    return found


def _with_biases(affine: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    weights = {f"{name}.weight": shape for name, shape in affine.items()}
    return weights | {f"{name}.bias": shape[:1] for name, shape in affine.items()}


def random_tensors(sizes: Sizes, seed: int = 0) -> Tensors:
    """Weights with which ids change along the answer and with the audio."""
    rng = np.random.default_rng(seed)
    tensors: Tensors = {}
    for name, shape in shapes(sizes).items():
        if len(shape) > 1:
            ids = name.endswith(("embed_tokens.weight", "lm_head.weight"))
            scale = 0.1 if ids else 1.6 / np.sqrt(np.prod(shape[1:]))
            values = rng.standard_normal(shape) * scale
        elif name.endswith(".weight"):
            values = rng.uniform(0.5, 1.5, shape)
        else:
            values = rng.normal(0, 0.4, shape)
        tensors[name] = values.astype(np.float32)
    return tensors


def write_checkpoint(
    folder: Path, sizes: Sizes | None = None, tensors: Tensors | None = None, **values: Any
) -> Path:
    """A whole folder; `values` change config.json, and None takes a key away."""
    sizes = Sizes() if sizes is None else sizes
    folder.mkdir(parents=True, exist_ok=True)
    chosen = {**config(sizes), **values}
    write_json(folder / "config.json", {k: v for k, v in chosen.items() if v is not None})
    write_json(folder / "generation_config.json", {"eos_token_id": [END]})
    write_safetensors(
        folder / "model.safetensors", random_tensors(sizes) if tensors is None else tensors
    )
    vocab, merges = trained()
    model = {"type": "BPE", "vocab": dict(vocab), "merges": [" ".join(pair) for pair in merges]}
    tokens = [added(name, id=i) for name, i in CONTROL.items()]
    spec = {**byte_level_spec(model, False), "added_tokens": tokens}
    write_json(folder / "tokenizer.json", spec)
    return folder
