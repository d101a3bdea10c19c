"""A Whisper encoder's tensors -> packed weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stapes.decoder.weights import Shapes
from stapes.models.vevo2.affine import (
    Affine,
    Norm,
    affine_shapes,
    read_affine,
    read_norm,
)
from stapes.models.vevo2.tokenizers.unfold import tap_channel
from stapes.models.vevo2.tokenizers.whisper_config import WhisperNames, WhisperSpec
from stapes.weights import WeightReader
from stapes.weights.reader import F32


@dataclass(frozen=True, eq=False)
class WhisperLayerWeights:
    """One pre-LN layer; q, k and v are fused by stacking their outputs, k's bias being zero."""

    attention_norm: Norm
    qkv: Affine
    out: Affine
    mlp_norm: Norm
    fc1: Affine
    fc2: Affine


@dataclass(frozen=True, eq=False)
class WhisperWeights:
    """All weights of the encoder.

    Attributes:
        conv1, conv2: [d_model, 3 * channels], inputs in the order (tap, channel).
        positions: f32 [max_source_positions, d_model].
        layers: encoder_layers of them.
        ln_post: the last norm.
    """

    conv1: Affine
    conv2: Affine
    positions: F32
    layers: tuple[WhisperLayerWeights, ...]
    ln_post: Norm


def expected_tensors(spec: WhisperSpec, names: WhisperNames) -> Shapes:
    """Names and shapes of every tensor of the encoder."""
    d = spec.d_model
    shapes: Shapes = {names.tensor(names.positions): (spec.max_source_positions, d)}
    shapes |= affine_shapes(names.tensor("conv1"), d, spec.num_mel_bins, 3)
    shapes |= affine_shapes(names.tensor("conv2"), d, d, 3)
    for i in range(spec.encoder_layers):
        for part in (names.q, names.v, names.out):
            shapes |= affine_shapes(names.layer(i, part), d, d)
        shapes[names.layer(i, f"{names.k}.weight")] = (d, d)
        for part in (names.attention_norm, names.mlp_norm):
            shapes |= affine_shapes(names.layer(i, part), d)
        shapes |= affine_shapes(names.layer(i, names.fc1), spec.encoder_ffn_dim, d)
        shapes |= affine_shapes(names.layer(i, names.fc2), d, spec.encoder_ffn_dim)
    return shapes | affine_shapes(names.tensor(names.ln_post), d)


def read_whisper(reader: WeightReader, spec: WhisperSpec, names: WhisperNames) -> WhisperWeights:
    """The weights; what the reader has was checked against `expected_tensors`."""
    return WhisperWeights(
        conv1=read_affine(reader, names.tensor("conv1"), tap_channel),
        conv2=read_affine(reader, names.tensor("conv2"), tap_channel),
        positions=reader.vector(names.tensor(names.positions)),
        layers=tuple(_layer(reader, names, i) for i in range(spec.encoder_layers)),
        ln_post=read_norm(reader, names.tensor(names.ln_post)),
    )


def _layer(reader: WeightReader, names: WhisperNames, i: int) -> WhisperLayerWeights:
    def affine(part: str) -> Affine:
        return read_affine(reader, names.layer(i, part))

    def norm(part: str) -> Norm:
        return read_norm(reader, names.layer(i, part))

    return WhisperLayerWeights(
        attention_norm=norm(names.attention_norm),
        qkv=_qkv(reader, names, i),
        out=affine(names.out),
        mlp_norm=norm(names.mlp_norm),
        fc1=affine(names.fc1),
        fc2=affine(names.fc2),
    )


def _qkv(reader: WeightReader, names: WhisperNames, i: int) -> Affine:
    q, k, v = (names.layer(i, part) for part in (names.q, names.k, names.v))
    matrix = reader.matrix(*(f"{name}.weight" for name in (q, k, v)))
    q_bias, v_bias = reader.vector(f"{q}.bias"), reader.vector(f"{v}.bias")
    return Affine(matrix, np.concatenate([q_bias, np.zeros_like(q_bias), v_bias]))
