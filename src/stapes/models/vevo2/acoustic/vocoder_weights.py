"""The vocoder's tensors -> packed weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.weights import Shapes
from stapes.models.vevo2.acoustic.config import VocoderSpec
from stapes.models.vevo2.affine import Affine
from stapes.tensors.tensor import widen
from stapes.weights import WeightReader
from stapes.weights.reader import F32

TAPS = 7  # of all convolutions over time (Vocos)
_BACKBONE, _HEAD, _WINDOW = "backbone", "head.out", "head.istft.window"


@dataclass(frozen=True, eq=False)
class Norm:
    """LayerNorm's weight and bias."""

    weight: F32
    bias: F32


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """One ConvNeXt block; what scales its result, gamma, is part of pwconv2.

    Attributes:
        depthwise: [taps, dim]; depthwise_bias: [dim].
    """

    depthwise: F32
    depthwise_bias: F32
    norm: Norm
    pwconv1: Affine
    pwconv2: Affine


@dataclass(frozen=True, eq=False)
class VocoderWeights:
    """All weights.

    Attributes:
        embed: [dim, taps * input_channels], inputs in the order (tap, channel).
        head: [n_fft + 2, dim].
        window: [n_fft].
    """

    embed: Affine
    norm: Norm
    blocks: tuple[BlockWeights, ...]
    final_norm: Norm
    head: Affine
    window: F32


def expected_tensors(spec: VocoderSpec) -> Shapes:
    """Names and shapes of every tensor that is read."""
    dim = spec.dim
    shapes: Shapes = {_WINDOW: (spec.n_fft,)}
    shapes |= _affine_shapes(f"{_BACKBONE}.embed", dim, spec.input_channels, TAPS)
    for norm in ("norm", "final_layer_norm"):
        shapes |= _affine_shapes(f"{_BACKBONE}.{norm}", dim)
    for i in range(spec.num_layers):
        shapes |= _affine_shapes(f"{_block(i)}.dwconv", dim, 1, TAPS)
        shapes |= _affine_shapes(f"{_block(i)}.norm", dim)
        shapes |= _affine_shapes(f"{_block(i)}.pwconv1", spec.intermediate_dim, dim)
        shapes |= _affine_shapes(f"{_block(i)}.pwconv2", dim, spec.intermediate_dim)
        shapes[f"{_block(i)}.gamma"] = (dim,)
    return shapes | _affine_shapes(_HEAD, spec.n_fft + 2, dim)


def _block(i: int) -> str:
    return f"{_BACKBONE}.convnext.{i}"


def _affine_shapes(name: str, out: int, *inputs: int) -> Shapes:
    return {f"{name}.weight": (out, *inputs), f"{name}.bias": (out,)}


def read_vocoder_weights(reader: WeightReader, spec: VocoderSpec) -> VocoderWeights:
    """All weights, packed; what the reader has was checked against `expected_tensors`."""
    embed = reader.matrix(f"{_BACKBONE}.embed.weight", arrange=_tap_channel)
    return VocoderWeights(
        embed=Affine(embed, reader.vector(f"{_BACKBONE}.embed.bias")),
        norm=_read_norm(reader, f"{_BACKBONE}.norm"),
        blocks=tuple(_read_block(reader, _block(i)) for i in range(spec.num_layers)),
        final_norm=_read_norm(reader, f"{_BACKBONE}.final_layer_norm"),
        head=Affine(reader.matrix(f"{_HEAD}.weight"), reader.vector(f"{_HEAD}.bias")),
        window=reader.vector(_WINDOW),
    )


def _read_norm(reader: WeightReader, name: str) -> Norm:
    return Norm(reader.vector(f"{name}.weight"), reader.vector(f"{name}.bias"))


def _read_block(reader: WeightReader, prefix: str) -> BlockWeights:
    gamma = reader.vector(f"{prefix}.gamma")

    def scaled(words: NDArray[Any]) -> NDArray[Any]:
        """[dim, intermediate], every output times its gamma."""
        return widen(words) * gamma[:, None]

    pwconv1 = reader.matrix(f"{prefix}.pwconv1.weight")
    pwconv2 = reader.matrix(f"{prefix}.pwconv2.weight", arrange=scaled)
    return BlockWeights(
        depthwise=_read_depthwise(reader, f"{prefix}.dwconv.weight", gamma.size),
        depthwise_bias=reader.vector(f"{prefix}.dwconv.bias"),
        norm=_read_norm(reader, f"{prefix}.norm"),
        pwconv1=Affine(pwconv1, reader.vector(f"{prefix}.pwconv1.bias")),
        pwconv2=Affine(pwconv2, reader.vector(f"{prefix}.pwconv2.bias") * gamma),
    )


def _read_depthwise(reader: WeightReader, name: str, dim: int) -> F32:
    """[dim, 1, taps] as it is stored -> [taps, dim]."""
    matrix = reader.matrix(name, arrange=lambda words: words.reshape(dim, TAPS), exact=True)
    return np.ascontiguousarray(matrix.to_f32().T)


def _tap_channel(words: NDArray[Any]) -> NDArray[Any]:
    """[out, channel, tap] -> [out, (tap, channel)]."""
    return words.transpose(0, 2, 1).reshape(words.shape[0], -1)
