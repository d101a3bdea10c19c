"""Small random checkpoints of the acoustic stages, in the published layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

F32 = NDArray[np.float32]
Tensors = dict[str, F32]

HIDDEN, HEADS, LAYERS, MELS, CODES = 64, 4, 3, 20, 50
DIM, INTER, BLOCKS, N_FFT, HOP = 48, 80, 4, 96, 24

PREPROCESS = {
    "hop_size": 480,
    "sample_rate": 24000,
    "n_fft": 1920,
    "num_mels": 128,
    "win_size": 1920,
    "fmin": 0,
    "fmax": 12000,
    "mel_var": 8.14,
    "mel_mean": -4.92,
    "load_chromagram": True,
}


def flow_config(**changes: Any) -> dict[str, Any]:
    transformer = {
        "mel_dim": MELS,
        "hidden_size": HIDDEN,
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "cfg_scale": 0.2,
        "use_cond_code": True,
        "cond_codebook_size": CODES,
        "cond_scale_factor": 4,
        "sigma": 1e-5,
        "time_scheduler": "cos",
    }
    return {
        "preprocess": PREPROCESS,
        "model": {"flow_matching_transformer": transformer | changes, "cond_sample_rate": 16000},
    }


def vocoder_config(**changes: Any) -> dict[str, Any]:
    vocos = {
        "input_channels": MELS,
        "dim": DIM,
        "intermediate_dim": INTER,
        "num_layers": BLOCKS,
        "n_fft": N_FFT,
        "hop_size": HOP,
        "padding": "same",
    }
    return {"preprocess": PREPROCESS, "model": {"vocos": vocos | changes, "period_gan": {}}}


class _Maker:
    """Random tensors under the names that they are asked for."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.tensors: Tensors = {}

    def matrix(self, name: str, *shape: int, fan_in: int | None = None, gain: float = 1.2) -> None:
        scale = gain / np.sqrt(fan_in or np.prod(shape[1:]))
        self.tensors[name] = (self._rng.normal(size=shape) * scale).astype(np.float32)

    def vector(self, name: str, size: int, mean: float = 0.0, spread: float = 0.2) -> None:
        self.tensors[name] = self._rng.normal(mean, spread, size).astype(np.float32)

    def affine(self, name: str, *shape: int, **more: Any) -> None:
        self.matrix(f"{name}.weight", *shape, **more)
        self.vector(f"{name}.bias", shape[0])

    def norm(self, name: str, size: int) -> None:
        self.vector(f"{name}.weight", size, mean=1.0)
        self.vector(f"{name}.bias", size)

    def mlp(self, name: str, inputs: int, hidden: int, outputs: int) -> None:
        self.affine(f"{name}.0", hidden, inputs)
        self.affine(f"{name}.2", outputs, hidden)


def flow_tensors(seed: int = 1, *, mels: int = MELS, codes: int = CODES) -> Tensors:
    make = _Maker(seed)
    make.tensors["cond_emb.weight"] = np.random.default_rng(9).normal(size=(codes, HIDDEN))
    make.tensors["cond_emb.weight"] = make.tensors["cond_emb.weight"].astype(np.float32)
    for i in (0, 2):
        make.affine(f"resampling_layers.{i}", HIDDEN, HIDDEN, 4, fan_in=2 * HIDDEN)
    make.mlp("repa_mlp_layer", HIDDEN, 4 * HIDDEN, 32)  # of training alone
    for name, inputs, outputs in (
        ("diff_step_mlp", HIDDEN, HIDDEN),
        ("cond_mlp", HIDDEN, HIDDEN),
        ("mel_mlp", mels, HIDDEN),
        ("mel_out_mlp", HIDDEN, mels),
    ):
        make.mlp(f"diff_estimator.{name}", inputs, 4 * HIDDEN, outputs)
    for i in range(LAYERS):
        layer = f"diff_estimator.layers.{i}"
        for x in "qkvo":
            make.matrix(f"{layer}.self_attn.{x}_proj.weight", HIDDEN, HIDDEN)
        make.matrix(f"{layer}.mlp.gate_proj.weight", 4 * HIDDEN, HIDDEN)
        make.matrix(f"{layer}.mlp.up_proj.weight", 4 * HIDDEN, HIDDEN)
        make.matrix(f"{layer}.mlp.down_proj.weight", HIDDEN, 4 * HIDDEN)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            _adaptive(make, f"{layer}.{norm}")
    _adaptive(make, "diff_estimator.norm")
    return make.tensors


def _adaptive(make: _Maker, norm: str) -> None:
    make.matrix(f"{norm}.to_weight.weight", HIDDEN, HIDDEN, gain=0.5)
    make.vector(f"{norm}.to_weight.bias", HIDDEN, mean=1.0)


def vocoder_tensors(seed: int = 2, *, mels: int = MELS, n_fft: int = N_FFT) -> Tensors:
    make = _Maker(seed)
    make.affine("backbone.embed", DIM, mels, 7)
    make.norm("backbone.norm", DIM)
    for i in range(BLOCKS):
        block = f"backbone.convnext.{i}"
        make.vector(f"{block}.gamma", DIM, mean=0.5)
        make.affine(f"{block}.dwconv", DIM, 1, 7)
        make.norm(f"{block}.norm", DIM)
        make.affine(f"{block}.pwconv1", INTER, DIM)
        make.affine(f"{block}.pwconv2", DIM, INTER)
    make.norm("backbone.final_layer_norm", DIM)
    make.affine("head.out", n_fft + 2, DIM)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    make.tensors["head.istft.window"] = window.astype(np.float32)
    return make.tensors


def write(folder: Path, tensors: Tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    return folder


def random_mel(frames: int, seed: int = 0, mels: int = MELS) -> F32:
    return np.random.default_rng(seed).normal(size=(frames, mels)).astype(np.float32)


def random_codes(count: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, CODES, count)
