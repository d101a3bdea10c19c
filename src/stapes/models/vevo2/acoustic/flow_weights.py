"""The flow-matching transformer's tensors -> packed weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.weights import Shapes
from stapes.models.vevo2.acoustic.config import FlowMatchingSpec
from stapes.models.vevo2.affine import Affine
from stapes.weights import PackedMatrix, WeightReader

_ESTIMATOR = "diff_estimator"
_TRAINING_ONLY = ("repa_mlp_layer.", "ctc_mlp_layer.")
_COMPUTED = "rotary_emb.inv_freq"  # a table that older versions of transformers stored


@dataclass(frozen=True, eq=False)
class Mlp:
    """Affine, SiLU, affine."""

    first: Affine
    second: Affine


@dataclass(frozen=True, eq=False)
class FlowLayerWeights:
    """One layer; qkv and gate_up are fused by stacking their outputs."""

    qkv: PackedMatrix
    o: PackedMatrix
    gate_up: PackedMatrix
    down: PackedMatrix


@dataclass(frozen=True, eq=False)
class FlowWeights:
    """All weights.

    Attributes:
        codebook: [cond_codebook_size, hidden].
        doublings: [2 * hidden, 2 * hidden] each, from two neighbours to the two rows between them.
        step_mlp: of the step embedding.
        norm_scales: [(2 * layers + 1) * hidden, hidden]: from the step embedding to the scales of
            every norm, in the order in which they come.
        cond_mlp, mel_mlp, mel_out_mlp: into, into and out of the layers.
        layers: num_layers of them, in order.
    """

    codebook: PackedMatrix
    doublings: tuple[Affine, ...]
    step_mlp: Mlp
    norm_scales: Affine
    cond_mlp: Mlp
    mel_mlp: Mlp
    mel_out_mlp: Mlp
    layers: tuple[FlowLayerWeights, ...]


def is_surplus(name: str) -> bool:
    """Whether a checkpoint may hold this tensor though no mel depends on it."""
    return name.startswith(_TRAINING_ONLY) or name.endswith(_COMPUTED)


def expected_tensors(spec: FlowMatchingSpec) -> Shapes:
    """Names and shapes of every tensor that is read."""
    hidden = spec.hidden_size
    shapes: Shapes = {"cond_emb.weight": (spec.cond_codebook_size, hidden)}
    for i in range(spec.doublings):
        shapes |= _affine_shapes(_doubling(i), hidden, hidden, 4)
    for name, (inputs, outputs) in _mlp_sizes(spec).items():
        shapes |= _affine_shapes(f"{_ESTIMATOR}.{name}.0", spec.intermediate_size, inputs)
        shapes |= _affine_shapes(f"{_ESTIMATOR}.{name}.2", outputs, spec.intermediate_size)
    for norm in _norms(spec):
        shapes |= _affine_shapes(norm, hidden, hidden)
    for i in range(spec.num_layers):
        shapes |= _layer_shapes(_layer(i), hidden, spec.intermediate_size)
    return shapes


def arranged_tensors(spec: FlowMatchingSpec) -> Shapes:
    """`expected_tensors` in the shapes in which they are packed, and lie in a converted file."""
    twice = 2 * spec.hidden_size
    doublings = {f"{_doubling(i)}.weight": (twice, twice) for i in range(spec.doublings)}
    return expected_tensors(spec) | doublings


def _mlp_sizes(spec: FlowMatchingSpec) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of the four MLPs."""
    hidden = spec.hidden_size
    return {
        "diff_step_mlp": (hidden, hidden),
        "cond_mlp": (hidden, hidden),
        "mel_mlp": (spec.mel_dim, hidden),
        "mel_out_mlp": (hidden, spec.mel_dim),
    }


def _doubling(i: int) -> str:
    return f"resampling_layers.{2 * i}"  # a GELU lies between two of them


def _layer(i: int) -> str:
    return f"{_ESTIMATOR}.layers.{i}"


def _norms(spec: FlowMatchingSpec) -> Iterator[str]:
    """The maps to the scales of every norm, in the order in which the norms come."""
    for i in range(spec.num_layers):
        yield f"{_layer(i)}.input_layernorm.to_weight"
        yield f"{_layer(i)}.post_attention_layernorm.to_weight"
    yield f"{_ESTIMATOR}.norm.to_weight"


def _affine_shapes(name: str, out: int, *inputs: int) -> Shapes:
    return {f"{name}.weight": (out, *inputs), f"{name}.bias": (out,)}


def _layer_shapes(prefix: str, hidden: int, intermediate: int) -> Shapes:
    attention: Shapes = {f"{prefix}.self_attn.{x}_proj.weight": (hidden, hidden) for x in "qkvo"}
    return attention | {
        f"{prefix}.mlp.gate_proj.weight": (intermediate, hidden),
        f"{prefix}.mlp.up_proj.weight": (intermediate, hidden),
        f"{prefix}.mlp.down_proj.weight": (hidden, intermediate),
    }


def read_flow_weights(reader: WeightReader, spec: FlowMatchingSpec) -> FlowWeights:
    """All weights, packed; what the reader has was checked against `expected_tensors`."""
    norms = tuple(_norms(spec))
    mlps = {name: _read_mlp(reader, f"{_ESTIMATOR}.{name}") for name in _mlp_sizes(spec)}
    return FlowWeights(
        codebook=reader.matrix("cond_emb.weight"),
        doublings=tuple(_read_doubling(reader, _doubling(i)) for i in range(spec.doublings)),
        step_mlp=mlps["diff_step_mlp"],
        norm_scales=_read_affine(reader, *norms),
        cond_mlp=mlps["cond_mlp"],
        mel_mlp=mlps["mel_mlp"],
        mel_out_mlp=mlps["mel_out_mlp"],
        layers=tuple(_read_layer(reader, _layer(i)) for i in range(spec.num_layers)),
    )


def _read_affine(reader: WeightReader, *names: str) -> Affine:
    return Affine(
        reader.matrix(*(f"{name}.weight" for name in names)),
        reader.vector(*(f"{name}.bias" for name in names)),
    )


def _read_mlp(reader: WeightReader, name: str) -> Mlp:
    return Mlp(_read_affine(reader, f"{name}.0"), _read_affine(reader, f"{name}.2"))


def _read_layer(reader: WeightReader, prefix: str) -> FlowLayerWeights:
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    return FlowLayerWeights(
        qkv=reader.matrix(*(f"{attention}.{x}_proj.weight" for x in "qkv")),
        o=reader.matrix(f"{attention}.o_proj.weight"),
        gate_up=reader.matrix(f"{mlp}.gate_proj.weight", f"{mlp}.up_proj.weight"),
        down=reader.matrix(f"{mlp}.down_proj.weight"),
    )


def _read_doubling(reader: WeightReader, name: str) -> Affine:
    matrix = reader.matrix(f"{name}.weight", arrange=_between_neighbours)
    return Affine(matrix, np.tile(reader.vector(f"{name}.bias"), 2))


def _between_neighbours(words: NDArray[Any]) -> NDArray[Any]:
    """A transposed convolution's [in, out, 4] -> [2 * out, 2 * in].

    With stride 2 and padding 1, output 2p - 1 is made of inputs p - 1 (by tap 2) and p (by tap 0),
    and output 2p of the same two, by taps 3 and 1: one matrix from pairs of rows to pairs of rows.
    """
    taps = words.transpose(2, 1, 0)
    return np.concatenate(
        [np.concatenate([taps[2], taps[0]], axis=1), np.concatenate([taps[3], taps[1]], axis=1)]
    )
