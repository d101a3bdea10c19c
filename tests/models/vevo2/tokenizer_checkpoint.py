"""Writes tiny random checkpoints of Vevo2's input side, with NumPy alone.

Names and shapes are those of the published folders, written down here once more. Matrices have the
scale 1.6 / sqrt(fan-in), so that codes change along a recording and with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from stapes.graph import Engine
from stapes.models.vevo2.tokenizers.load import TokenizerPaths, Tokenizers, load_tokenizers

F32 = NDArray[np.float32]
Tensors = dict[str, F32]


@dataclass(frozen=True)
class CocoSizes:
    """A tokenizer small enough for a test."""

    whisper: int
    halvings: int
    codebook: int
    hidden: int = 40
    vocos: int = 24
    wide: int = 56
    blocks: int = 3
    code_width: int = 8


@dataclass(frozen=True)
class WhisperSizes:
    """The same of Whisper; its positions are the real ones, since 30 s are 30 s."""

    width: int = 32
    layers: int = 2
    heads: int = 4
    mels: int = 80
    positions: int = 1500


WHISPER = WhisperSizes()
CONTENT_STYLE = CocoSizes(whisper=WHISPER.width, halvings=2, codebook=300)
PROSODY = CocoSizes(whisper=0, halvings=3, codebook=50)


class Random:
    """Makes tensors."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def weight(self, *shape: int) -> F32:
        scale = 1.6 / np.sqrt(np.prod(shape[1:]))
        return (scale * self._rng.standard_normal(shape)).astype(np.float32)

    def vector(self, size: int, mean: float = 0.0) -> F32:
        return (mean + 0.1 * self._rng.standard_normal(size)).astype(np.float32)

    def affine(self, name: str, *shape: int) -> Tensors:
        return {f"{name}.weight": self.weight(*shape), f"{name}.bias": self.vector(shape[0])}

    def norm(self, name: str, width: int) -> Tensors:
        return {f"{name}.weight": self.vector(width, 1.0), f"{name}.bias": self.vector(width)}


def coco_tensors(sizes: CocoSizes, seed: int = 0) -> Tensors:
    """A tokenizer's tensors, with some of those that training leaves."""
    make, hidden = Random(seed), sizes.hidden
    tensors = make.affine("chromagram_input_layer", hidden, 24)
    if sizes.whisper:
        tensors |= make.affine("whisper_input_layer", hidden, sizes.whisper)
    for i in range(sizes.halvings):
        tensors |= make.affine(f"downsample_layers.{2 * i}", hidden, hidden, 3)
        tensors |= make.affine(f"upsample_layers.{2 * i}", hidden, hidden, 4)
    tensors |= make.affine("encoder.0.embed", sizes.vocos, hidden, 7)
    tensors |= make.norm("encoder.0.norm", sizes.vocos)
    for i in range(sizes.blocks):
        block = f"encoder.0.convnext.{i}"
        tensors |= make.affine(f"{block}.dwconv", sizes.vocos, 1, 7)
        tensors |= make.norm(f"{block}.norm", sizes.vocos)
        tensors |= make.affine(f"{block}.pwconv1", sizes.wide, sizes.vocos)
        tensors |= make.affine(f"{block}.pwconv2", sizes.vocos, sizes.wide)
        tensors[f"{block}.gamma"] = make.vector(sizes.vocos, 0.5)
    tensors |= make.norm("encoder.0.final_layer_norm", sizes.vocos)
    tensors |= make.affine("encoder.1", hidden, sizes.vocos)
    return tensors | _quantizer(make, sizes) | make.affine("decoder.1", hidden, sizes.vocos)


def _quantizer(make: Random, sizes: CocoSizes) -> Tensors:
    name = "quantizer.quantizers.0"
    return {
        f"{name}.in_project.weight_g": make.vector(sizes.code_width, 2.0).reshape(-1, 1, 1),
        f"{name}.in_project.weight_v": make.weight(sizes.code_width, sizes.hidden, 1),
        f"{name}.in_project.bias": make.vector(sizes.code_width),
        f"{name}.out_project.weight_g": make.vector(sizes.hidden, 2.0).reshape(-1, 1, 1),
        f"{name}.out_project.weight_v": make.weight(sizes.hidden, sizes.code_width, 1),
        f"{name}.out_project.bias": make.vector(sizes.hidden),
        f"{name}.codebook.weight": make.weight(sizes.codebook, sizes.code_width),
    }


def whisper_tensors(sizes: WhisperSizes = WHISPER, seed: int = 7) -> Tensors:
    """An encoder's tensors under the names of Hugging Face's WhisperModel."""
    make, width = Random(seed), sizes.width
    tensors = make.affine("encoder.conv1", width, sizes.mels, 3)
    tensors |= make.affine("encoder.conv2", width, width, 3)
    tensors["encoder.embed_positions.weight"] = make.weight(sizes.positions, width) * np.float32(
        0.2
    )
    for i in range(sizes.layers):
        layer = f"encoder.layers.{i}"
        for part in "qkv":
            tensors |= make.affine(f"{layer}.self_attn.{part}_proj", width, width)
        del tensors[f"{layer}.self_attn.k_proj.bias"]
        tensors |= make.affine(f"{layer}.self_attn.out_proj", width, width)
        tensors |= make.norm(f"{layer}.self_attn_layer_norm", width)
        tensors |= make.affine(f"{layer}.fc1", 4 * width, width)
        tensors |= make.affine(f"{layer}.fc2", width, 4 * width)
        tensors |= make.norm(f"{layer}.final_layer_norm", width)
    return tensors | make.norm("encoder.layer_norm", width)


def whisper_config(sizes: WhisperSizes = WHISPER) -> dict[str, Any]:
    """Hugging Face's config.json."""
    return {
        "model_type": "whisper",
        "activation_function": "gelu",
        "scale_embedding": False,
        "num_mel_bins": sizes.mels,
        "d_model": sizes.width,
        "encoder_layers": sizes.layers,
        "encoder_attention_heads": sizes.heads,
        "encoder_ffn_dim": 4 * sizes.width,
        "max_source_positions": sizes.positions,
    }


def openai_dims(sizes: WhisperSizes = WHISPER) -> dict[str, int]:
    """OpenAI's dimensions of the encoder."""
    return {
        "n_mels": sizes.mels,
        "n_audio_ctx": sizes.positions,
        "n_audio_state": sizes.width,
        "n_audio_head": sizes.heads,
        "n_audio_layer": sizes.layers,
    }


_OPENAI = (
    ("embed_positions.weight", "positional_embedding"),
    ("layers.", "blocks."),
    ("self_attn_layer_norm", "attn_ln"),
    ("final_layer_norm", "mlp_ln"),
    ("self_attn.q_proj", "attn.query"),
    ("self_attn.k_proj", "attn.key"),
    ("self_attn.v_proj", "attn.value"),
    ("self_attn.out_proj", "attn.out"),
    (".fc1.", ".mlp.0."),
    (".fc2.", ".mlp.2."),
    ("encoder.layer_norm", "encoder.ln_post"),
)


def openai_name(name: str) -> str:
    """What OpenAI's files call a tensor of Hugging Face's WhisperModel."""
    for theirs, openai in _OPENAI:
        name = name.replace(theirs, openai)
    return name


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_whisper(folder: Path, tensors: Tensors, config: dict[str, Any]) -> Path:
    """A folder of config.json and model.safetensors."""
    folder.mkdir(parents=True)
    write_json(folder / "config.json", config)
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_coco(folder: Path, tensors: Tensors) -> Path:
    """A tokenizer's folder."""
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    return folder


def statistics(width: int = WHISPER.width, seed: int = 3) -> Tensors:
    """Mean and deviation."""
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(0, 0.3, width), rng.uniform(0.5, 1.5, width)
    return {"mean": mean.astype(np.float32), "std": std.astype(np.float32)}


def write_all(folder: Path) -> TokenizerPaths:
    """Both tokenizers, Whisper and the statistics."""
    folder.mkdir(exist_ok=True)
    save_file(statistics(), folder / "whisper_stats.safetensors")
    return TokenizerPaths(
        content_style=write_coco(
            folder / "tokenizer/contentstyle_fvq16384_12.5hz", coco_tensors(CONTENT_STYLE, 1)
        ),
        prosody=write_coco(folder / "tokenizer/prosody_fvq512_6.25hz", coco_tensors(PROSODY, 2)),
        whisper=write_whisper(folder / "whisper-medium", whisper_tensors(), whisper_config()),
        statistics=folder / "whisper_stats.safetensors",
    )


def load_all(folder: Path, **options: Any) -> Tokenizers:
    """What `write_all` writes, loaded."""
    return load_tokenizers(write_all(folder), Engine(2), **options)


def melody(seconds: float, rate: int = 24_000, seed: int = 0) -> F32:
    """Tones that change five times a second, with harmonics, over faint noise."""
    rng = np.random.default_rng(seed)
    count = int(seconds * rate)
    steps = rng.integers(-12, 12, 1 + int(seconds * 5))
    hz = 220 * 2 ** (np.repeat(steps, -(-rate // 5))[:count] / 12)
    phase = np.cumsum(hz) * 2 * np.pi / rate
    tones = sum(np.sin(k * phase) / k for k in range(1, 6))
    return (0.2 * tones + rng.normal(0, 1e-3, count)).astype(np.float32)
