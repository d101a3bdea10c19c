"""Flow matching, vocoder and mel in plain torch and f64, from their formulas; nothing of stapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Weights = dict[str, Tensor]


def double(tensors: dict[str, NDArray[Any]]) -> Weights:
    return {name: torch.from_numpy(values).double() for name, values in tensors.items()}


def affine(w: Weights, name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def mlp(w: Weights, name: str, x: Tensor) -> Tensor:
    return affine(w, f"{name}.2", functional.silu(affine(w, f"{name}.0", x)))


def condition(w: Weights, codes: NDArray[Any]) -> Tensor:
    """Codes [n] -> [4 n, hidden]."""
    x = w["cond_emb.weight"][torch.from_numpy(codes)].T[None]
    for i in (0, 2):
        weight, bias = w[f"resampling_layers.{i}.weight"], w[f"resampling_layers.{i}.bias"]
        x = functional.gelu(functional.conv_transpose1d(x, weight, bias, stride=2, padding=1))
    return x[0].T


def rotated(x: Tensor) -> Tensor:
    """RoPE on [heads, n, d], positions from 0."""
    _, n, d = x.shape
    result = torch.empty_like(x)
    for i in range(d // 2):
        angle = torch.arange(n, dtype=torch.float64) * 10000.0 ** (-2 * i / d)
        a, b = x[:, :, i], x[:, :, i + d // 2]
        result[:, :, i] = a * angle.cos() - b * angle.sin()
        result[:, :, i + d // 2] = b * angle.cos() + a * angle.sin()
    return result


def attention(w: Weights, prefix: str, x: Tensor, heads: int) -> Tensor:
    q, k, v = ((x @ w[f"{prefix}.{p}_proj.weight"].T) for p in "qkv")
    q, k, v = (y.reshape(len(x), heads, -1).transpose(0, 1) for y in (q, k, v))
    scores = rotated(q) @ rotated(k).transpose(1, 2) / math.sqrt(q.shape[-1])
    mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(x), -1)
    return mixed @ w[f"{prefix}.o_proj.weight"].T


def adaptive_norm(w: Weights, name: str, x: Tensor, step: Tensor) -> Tensor:
    scale = affine(w, f"{name}.to_weight", step)
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * scale


def estimator(
    w: Weights, mel: Tensor, time: float, cond: Tensor, layers: int, heads: int
) -> Tensor:
    """The flow of every row of mel [n, mels] at a time."""
    e = "diff_estimator"
    half = cond.shape[1] // 2
    angles = time * torch.exp(torch.arange(half).double() * -(math.log(10000) / (half - 1)))
    step = mlp(w, f"{e}.diff_step_mlp", torch.cat([angles.sin(), angles.cos()]))
    x = mlp(w, f"{e}.mel_mlp", mel) + mlp(w, f"{e}.cond_mlp", cond)
    for i in range(layers):
        p = f"{e}.layers.{i}"
        normed = adaptive_norm(w, f"{p}.input_layernorm", x, step)
        x = x + attention(w, f"{p}.self_attn", normed, heads)
        normed = adaptive_norm(w, f"{p}.post_attention_layernorm", x, step)
        gate, up = (normed @ w[f"{p}.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        x = x + (functional.silu(gate) * up) @ w[f"{p}.mlp.down_proj.weight"].T
    return mlp(w, f"{e}.mel_out_mlp", adaptive_norm(w, f"{e}.norm", x, step))


def flow_matching(
    w: Weights,
    codes: NDArray[Any],
    prompt: NDArray[np.float32],
    noise: NDArray[np.float32],
    *,
    steps: int,
    layers: int,
    heads: int,
    cfg: float = 1.0,
    rescale: float = 0.75,
) -> NDArray[np.float64]:
    """The mel behind the prompt, from the noise."""
    cond, first = condition(w, codes), torch.from_numpy(prompt).double()
    x = torch.from_numpy(noise).double()
    for i in range(steps):
        time, given = (i + 0.5) / steps, torch.cat([first, x])
        flow = estimator(w, given, time, cond, layers, heads)[len(prompt) :]
        if cfg > 0:
            bare = estimator(w, x, time, torch.zeros_like(cond)[: len(x)], layers, heads)
            led = flow + cfg * (flow - bare)
            flow = rescale * led * flow.std() / led.std() + (1 - rescale) * led
        x = x + flow / steps
    return x.numpy()


def vocoder(w: Weights, mel: NDArray[np.float32], blocks: int, hop: int) -> NDArray[np.float64]:
    """Samples of a mel [frames, mels]."""

    def norm(name: str, x: Tensor) -> Tensor:
        shape = (x.shape[-1],)
        return functional.layer_norm(x, shape, w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)

    def conv(name: str, x: Tensor, groups: int = 1) -> Tensor:
        weight, bias = w[f"{name}.weight"], w[f"{name}.bias"]
        return functional.conv1d(x.T[None], weight, bias, padding=3, groups=groups)[0].T

    x = norm("backbone.norm", conv("backbone.embed", torch.from_numpy(mel).double()))
    for i in range(blocks):
        p = f"backbone.convnext.{i}"
        h = norm(f"{p}.norm", conv(f"{p}.dwconv", x, groups=x.shape[1]))
        h = affine(w, f"{p}.pwconv2", functional.gelu(affine(w, f"{p}.pwconv1", h)))
        x = x + w[f"{p}.gamma"] * h
    out = affine(w, "head.out", norm("backbone.final_layer_norm", x))
    logarithm, phase = out.chunk(2, dim=-1)
    spectrum = torch.polar(logarithm.exp().clip(max=100.0), phase)
    return overlapped(spectrum, w["head.istft.window"], hop).numpy()


def overlapped(spectrum: Tensor, window: Tensor, hop: int) -> Tensor:
    """The inverse transform by its definition: a loop over frames."""
    n_fft = len(window)
    total = torch.zeros((len(spectrum) - 1) * hop + n_fft, dtype=torch.float64)
    weight = torch.zeros_like(total)
    for i, bins in enumerate(spectrum):
        total[i * hop : i * hop + n_fft] += torch.fft.irfft(bins, n_fft) * window
        weight[i * hop : i * hop + n_fft] += window**2
    margin = (n_fft - hop) // 2
    return total[margin:-margin] / weight[margin:-margin]
