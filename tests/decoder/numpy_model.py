"""The decoder's forward pass in plain NumPy, from the model's published definition.

Knows neither plans nor packed weights: what the whole of spec, loading and network is held against.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stapes.decoder import DecoderSpec, Prompt

F64 = NDArray[np.float64]


def numpy_logits(
    spec: DecoderSpec, tensors: Mapping[str, NDArray[np.float32]], prompt: Prompt
) -> F64:
    """Logits at every position of a prompt."""
    wide = {name: values.astype(np.float64) for name, values in tensors.items()}
    x = wide[spec.names.token_embedding][list(prompt.token_ids)]
    if prompt.injection is not None:
        x[list(prompt.injection.positions)] = prompt.injection.values
    for i in range(spec.num_hidden_layers):
        x = _layer(spec, wide, f"{spec.names.layer_prefix}.{i}", x)
    tied = spec.tie_word_embeddings
    head = wide[spec.names.token_embedding if tied else spec.names.lm_head]
    return _rms_norm(x, wide[spec.names.final_norm], spec.rms_norm_eps) @ head.T


def _layer(spec: DecoderSpec, w: Mapping[str, F64], prefix: str, x: F64) -> F64:
    eps = spec.rms_norm_eps
    h = _rms_norm(x, w[f"{prefix}.input_layernorm.weight"], eps)
    x = x + _attention(spec, w, f"{prefix}.self_attn", h) @ w[f"{prefix}.self_attn.o_proj.weight"].T
    h = _rms_norm(x, w[f"{prefix}.post_attention_layernorm.weight"], eps)
    gate, up = (h @ w[f"{prefix}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
    return x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{prefix}.mlp.down_proj.weight"].T


def _projections(spec: DecoderSpec, w: Mapping[str, F64], prefix: str, h: F64) -> list[F64]:
    """q, k and v as [heads, n, head_dim]."""
    names = ["qkv_proj"] if spec.packed_qkv else ["q_proj", "k_proj", "v_proj"]
    columns = [h @ w[f"{prefix}.{n}.weight"].T + w.get(f"{prefix}.{n}.bias", 0.0) for n in names]
    heads, kv = spec.num_attention_heads, spec.num_key_value_heads
    split = np.split(np.concatenate(columns, axis=1).reshape(len(h), -1, spec.head_dim),
                     [heads, heads + kv], axis=1)  # fmt: skip
    return [part.transpose(1, 0, 2) for part in split]


def _attention(spec: DecoderSpec, w: Mapping[str, F64], prefix: str, h: F64) -> F64:
    q, k, v = _projections(spec, w, prefix, h)
    if spec.qk_norm:
        q = _rms_norm(q, w[f"{prefix}.q_norm.weight"], spec.rms_norm_eps)
        k = _rms_norm(k, w[f"{prefix}.k_norm.weight"], spec.rms_norm_eps)
    groups = spec.num_attention_heads // spec.num_key_value_heads
    q, k = _rotate(spec, q), _rotate(spec, k).repeat(groups, axis=0)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(spec.head_dim)
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return (weights @ v.repeat(groups, axis=0)).transpose(1, 0, 2).reshape(len(h), -1)


def _rotate(spec: DecoderSpec, x: F64) -> F64:
    """RoPE in its half-split form, positions from 0."""
    half = spec.head_dim // 2
    rates = spec.rope_theta ** (-np.arange(half) / half)
    angles = np.arange(x.shape[1])[:, None] * rates
    first, second = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=2)


def _rms_norm(x: F64, weight: F64, eps: float) -> F64:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight
