"""The Coco tokenizers' tensors -> sizes and packed weights.

The published folders hold model.safetensors and no configuration, so the sizes are those of the
tensors. What training has left there (decoder, upsampling, output layers) is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.weights import Shapes
from stapes.errors import CheckpointError
from stapes.models.vevo2.affine import (
    Affine,
    Norm,
    affine_shapes,
    read_affine,
    read_norm,
)
from stapes.models.vevo2.tokenizers.unfold import tap_channel
from stapes.tensors import widen
from stapes.weights import PackedMatrix, WeightReader
from stapes.weights.reader import F32

DOWN_TAPS = 3
EMBED_TAPS = 7
"""Taps of the convolutions that halve the rate, and of those of the backbone."""

_CHROMA, _WHISPER = "chromagram_input_layer", "whisper_input_layer"
_DOWN, _BACKBONE, _OUT = "downsample_layers", "encoder.0", "encoder.1"
_QUANTIZER = "quantizer.quantizers.0"
_IN_PROJECT, _CODEBOOK = f"{_QUANTIZER}.in_project", f"{_QUANTIZER}.codebook.weight"
_READ = (_CHROMA, _WHISPER, _DOWN, "encoder", "quantizer")
_UNUSED = f"{_QUANTIZER}.out_project"

_LEAST_NORM = 1e-12  # torch.nn.functional.normalize


@dataclass(frozen=True)
class CocoSpec:
    """Sizes of a tokenizer; names as in the reference's configuration.

    Attributes:
        whisper_dim: width of the Whisper features, 0 when it reads the chromagram alone.
        downsample_layers: convolutions that halve the rate.
    """

    chromagram_dim: int
    whisper_dim: int
    hidden_size: int
    downsample_layers: int
    vocos_dim: int
    vocos_intermediate_dim: int
    vocos_num_layers: int
    codebook_size: int
    codebook_dim: int

    def codes(self, frames: int) -> int:
        """Codes of so many frames: halved, rounded up, for each downsampling layer."""
        for _ in range(self.downsample_layers):
            frames = -(-frames // 2)
        return frames


class _Shaped(Protocol):
    def __iter__(self) -> Iterator[str]: ...

    def __contains__(self, name: object) -> bool: ...

    def __getitem__(self, name: str, /) -> Any: ...


def spec_from_tensors(store: _Shaped, where: str) -> CocoSpec:
    """Sizes of the tokenizer in a store; CheckpointError when a tensor that tells them is missing.

    Whether the other tensors fit is for `check_tensors` to say.
    """

    def shape(name: str, axes: int) -> tuple[int, ...]:
        found = tuple(store[name].shape) if name in store else ()
        if len(found) != axes or 0 in found:
            raise CheckpointError(
                f"{where} holds no Coco tokenizer: its {name} has the shape {list(found)}, not"
                f" {axes} axes."
            )
        return found

    hidden_size, chromagram_dim = shape(f"{_CHROMA}.weight", 2)
    whisper = f"{_WHISPER}.weight"
    codebook_size, codebook_dim = shape(_CODEBOOK, 2)
    return CocoSpec(
        chromagram_dim=chromagram_dim,
        whisper_dim=shape(whisper, 2)[1] if whisper in store else 0,
        hidden_size=hidden_size,
        downsample_layers=_count(store, f"{_DOWN}.{{}}.weight", 2),
        vocos_dim=shape(f"{_BACKBONE}.embed.weight", 3)[0],
        vocos_intermediate_dim=shape(f"{_BACKBONE}.convnext.0.pwconv1.weight", 2)[0],
        vocos_num_layers=_count(store, f"{_BACKBONE}.convnext.{{}}.gamma", 1),
        codebook_size=codebook_size,
        codebook_dim=codebook_dim,
    )


def _count(store: _Shaped, pattern: str, step: int) -> int:
    """How many of pattern 0, step, 2 * step ... are there."""
    count = 0
    while pattern.format(count * step) in store:
        count += 1
    return count


def expected_tensors(spec: CocoSpec) -> Shapes:
    """Names and shapes of every tensor that is read."""
    hidden, dim, wide = spec.hidden_size, spec.vocos_dim, spec.vocos_intermediate_dim
    shapes = affine_shapes(_CHROMA, hidden, spec.chromagram_dim)
    if spec.whisper_dim:
        shapes |= affine_shapes(_WHISPER, hidden, spec.whisper_dim)
    for i in range(spec.downsample_layers):
        shapes |= affine_shapes(f"{_DOWN}.{2 * i}", hidden, hidden, DOWN_TAPS)
    shapes |= affine_shapes(f"{_BACKBONE}.embed", dim, hidden, EMBED_TAPS)
    shapes |= affine_shapes(f"{_BACKBONE}.norm", dim)
    for i in range(spec.vocos_num_layers):
        block = f"{_BACKBONE}.convnext.{i}"
        shapes |= affine_shapes(f"{block}.dwconv", dim, 1, EMBED_TAPS)
        shapes |= affine_shapes(f"{block}.norm", dim)
        shapes |= affine_shapes(f"{block}.pwconv1", wide, dim)
        shapes |= affine_shapes(f"{block}.pwconv2", dim, wide)
        shapes[f"{block}.gamma"] = (dim,)
    shapes |= affine_shapes(f"{_BACKBONE}.final_layer_norm", dim)
    shapes |= affine_shapes(_OUT, hidden, dim)
    shapes[f"{_IN_PROJECT}.weight_g"] = (spec.codebook_dim, 1, 1)
    shapes[f"{_IN_PROJECT}.weight_v"] = (spec.codebook_dim, hidden, 1)
    shapes[f"{_IN_PROJECT}.bias"] = (spec.codebook_dim,)
    return shapes | {_CODEBOOK: (spec.codebook_size, spec.codebook_dim)}


def is_unused(name: str) -> bool:
    """Whether a tensor belongs to what only training needs."""
    return name.startswith(_UNUSED) or name.split(".")[0] not in _READ


@dataclass(frozen=True, eq=False)
class ConvNextWeights:
    """One block.

    Attributes:
        depthwise: f32 [7, vocos_dim], and its bias f32 [vocos_dim].
        pwconv2: with gamma multiplied into matrix and bias.
    """

    depthwise: F32
    depthwise_bias: F32
    norm: Norm
    pwconv1: Affine
    pwconv2: Affine


@dataclass(frozen=True, eq=False)
class CocoWeights:
    """All weights.

    Attributes:
        chroma, whisper: the input layers; None without Whisper.
        down: [hidden_size, (tap, channel)] of each convolution.
        embed: [vocos_dim, (tap, channel)].
        in_project: [codebook_dim, hidden_size] f32, the weight norm multiplied out.
        codebook: [codebook_size, codebook_dim] f32, every row of length 1.
    """

    chroma: Affine
    whisper: Affine | None
    down: tuple[Affine, ...]
    embed: Affine
    norm: Norm
    blocks: tuple[ConvNextWeights, ...]
    final_norm: Norm
    out: Affine
    in_project: Affine
    codebook: PackedMatrix


def read_coco(reader: WeightReader, spec: CocoSpec) -> CocoWeights:
    """The weights; what the reader has was checked against `expected_tensors`.

    The chromagram's layer and the quantiser stay f32: their few inputs would share a scale, and
    they are small.
    """
    down = (f"{_DOWN}.{2 * i}" for i in range(spec.downsample_layers))
    blocks = (f"{_BACKBONE}.convnext.{i}" for i in range(spec.vocos_num_layers))
    return CocoWeights(
        chroma=read_affine(reader, _CHROMA, exact=True),
        whisper=read_affine(reader, _WHISPER) if spec.whisper_dim else None,
        down=tuple(read_affine(reader, name, tap_channel) for name in down),
        embed=read_affine(reader, f"{_BACKBONE}.embed", tap_channel),
        norm=read_norm(reader, f"{_BACKBONE}.norm"),
        blocks=tuple(_block(reader, name) for name in blocks),
        final_norm=read_norm(reader, f"{_BACKBONE}.final_layer_norm"),
        out=read_affine(reader, _OUT),
        in_project=_in_project(reader),
        codebook=reader.matrix(_CODEBOOK, arrange=_unit_rows, exact=True),
    )


def _block(reader: WeightReader, name: str) -> ConvNextWeights:
    gamma = reader.vector(f"{name}.gamma")

    def scaled(words: NDArray[Any]) -> F32:
        return widen(words) * gamma[:, np.newaxis]

    pwconv2 = reader.matrix(f"{name}.pwconv2.weight", arrange=scaled)
    taps = reader.vector(f"{name}.dwconv.weight").reshape(gamma.size, EMBED_TAPS)
    return ConvNextWeights(
        depthwise=np.ascontiguousarray(taps.T),
        depthwise_bias=reader.vector(f"{name}.dwconv.bias"),
        norm=read_norm(reader, f"{name}.norm"),
        pwconv1=read_affine(reader, f"{name}.pwconv1"),
        pwconv2=Affine(pwconv2, reader.vector(f"{name}.pwconv2.bias") * gamma),
    )


def _in_project(reader: WeightReader) -> Affine:
    """G * v / |v|, row by row."""
    lengths = reader.vector(f"{_IN_PROJECT}.weight_g").reshape(-1, 1)

    def normed(words: NDArray[Any]) -> F32:
        return _unit_rows(words) * lengths

    matrix = reader.matrix(f"{_IN_PROJECT}.weight_v", arrange=normed, exact=True)
    return Affine(matrix, reader.vector(f"{_IN_PROJECT}.bias"))


def _unit_rows(words: NDArray[Any]) -> F32:
    """Rows [n, ...] divided by their lengths: f32 [n, values]."""
    rows = widen(words).reshape(words.shape[0], -1).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: F32 = (rows / np.maximum(lengths, _LEAST_NORM)).astype(np.float32)
    return unit
