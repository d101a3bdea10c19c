"""The audio encoder's tensors -> packed weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from stapes.decoder.weights import Shapes
from stapes.models.qwen3_asr.config import EncoderNames, EncoderSpec
from stapes.weights import PackedMatrix, WeightReader
from stapes.weights.reader import F32


@dataclass(frozen=True, eq=False)
class Affine:
    """A matrix and its bias."""

    matrix: PackedMatrix
    bias: F32


@dataclass(frozen=True, eq=False)
class Norm:
    """LayerNorm's weight and bias."""

    weight: F32
    bias: F32


@dataclass(frozen=True, eq=False)
class EncoderLayerWeights:
    """One pre-LN layer; q, k and v are fused by stacking their outputs."""

    attention_norm: Norm
    qkv: Affine
    out: Affine
    mlp_norm: Norm
    fc1: Affine
    fc2: Affine


@dataclass(frozen=True, eq=False)
class EncoderWeights:
    """All weights of the encoder and its projector."""

    convs: tuple[Affine, ...]
    conv_out: PackedMatrix
    layers: tuple[EncoderLayerWeights, ...]
    ln_post: Norm
    proj1: Affine
    proj2: Affine


def halved(size: int, times: int) -> int:
    """A length after so many convolutions of stride 2 and padding 1: halved, rounded up."""
    for _ in range(times):
        size = (size + 1) // 2
    return size


def expected_tensors(spec: EncoderSpec, names: EncoderNames) -> Shapes:
    """Names and shapes of every tensor of the encoder and the projector."""
    channels, d, tower = spec.downsample_hidden_size, spec.d_model, names.tower
    shapes: Shapes = {f"{tower}.conv_out.weight": (d, channels * halved(spec.num_mel_bins, 3))}
    for i, inputs in enumerate((1, channels, channels), start=1):
        shapes |= affine_tensors(f"{tower}.conv2d{i}", channels, inputs, 3, 3)
    for i in range(spec.encoder_layers):
        shapes |= _layer_tensors(spec, f"{tower}.layers.{i}")
    shapes |= affine_tensors(f"{tower}.ln_post", d)
    shapes |= affine_tensors(names.projector_1, d, d)
    return shapes | affine_tensors(names.projector_2, spec.output_dim, d)


def affine_tensors(name: str, out: int, *inputs: int) -> Shapes:
    """A weight [out, *inputs] and its bias."""
    return {f"{name}.weight": (out, *inputs), f"{name}.bias": (out,)}


def _layer_tensors(spec: EncoderSpec, prefix: str) -> Shapes:
    d, ffn = spec.d_model, spec.encoder_ffn_dim
    shapes: Shapes = {}
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        shapes |= affine_tensors(f"{prefix}.self_attn.{name}", d, d)
    for name in ("self_attn_layer_norm", "final_layer_norm"):
        shapes |= affine_tensors(f"{prefix}.{name}", d)
    shapes |= affine_tensors(f"{prefix}.fc1", ffn, d)
    return shapes | affine_tensors(f"{prefix}.fc2", d, ffn)


class EncoderLoader:
    """Reads an encoder; what the reader has was checked against `expected_tensors`."""

    def __init__(self, reader: WeightReader, names: EncoderNames) -> None:
        self._reader = reader
        self._names = names

    def load(self, spec: EncoderSpec) -> EncoderWeights:
        """All weights, packed. The first convolution has 9 inputs, too few to share a scale."""
        tower = self._names.tower
        return EncoderWeights(
            convs=tuple(self._conv(f"{tower}.conv2d{i}", i == 1) for i in (1, 2, 3)),
            conv_out=self._conv_out(f"{tower}.conv_out.weight", spec.downsample_hidden_size),
            layers=tuple(self._layer(f"{tower}.layers.{i}") for i in range(spec.encoder_layers)),
            ln_post=self._norm(f"{tower}.ln_post"),
            proj1=self._affine(self._names.projector_1),
            proj2=self._affine(self._names.projector_2),
        )

    def _layer(self, prefix: str) -> EncoderLayerWeights:
        attention = f"{prefix}.self_attn"
        return EncoderLayerWeights(
            attention_norm=self._norm(f"{prefix}.self_attn_layer_norm"),
            qkv=self._affine(*(f"{attention}.{x}_proj" for x in "qkv")),
            out=self._affine(f"{attention}.out_proj"),
            mlp_norm=self._norm(f"{prefix}.final_layer_norm"),
            fc1=self._affine(f"{prefix}.fc1"),
            fc2=self._affine(f"{prefix}.fc2"),
        )

    def _affine(self, *names: str) -> Affine:
        return Affine(
            self._reader.matrix(*(f"{name}.weight" for name in names)),
            self._reader.vector(*(f"{name}.bias" for name in names)),
        )

    def _norm(self, name: str) -> Norm:
        return Norm(self._reader.vector(f"{name}.weight"), self._reader.vector(f"{name}.bias"))

    def _conv(self, name: str, first: bool) -> Affine:
        matrix = self._reader.matrix(f"{name}.weight", arrange=_time_mel_channel, exact=first)
        return Affine(matrix, self._reader.vector(f"{name}.bias"))

    def _conv_out(self, name: str, channels: int) -> PackedMatrix:
        def mel_channel(words: NDArray[Any]) -> NDArray[Any]:
            """[d, (channel, mel)] -> [d, (mel, channel)]."""
            matrix = words.reshape(words.shape[0], channels, -1).transpose(0, 2, 1)
            return matrix.reshape(words.shape[0], -1)

        return self._reader.matrix(name, arrange=mel_channel)


def _time_mel_channel(words: NDArray[Any]) -> NDArray[Any]:
    """[out, in, mel, time] -> [out, (time, mel, in)]: our images are [time][mel][channel]."""
    return words.transpose(0, 3, 2, 1).reshape(words.shape[0], -1)
