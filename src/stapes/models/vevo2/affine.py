"""Matrices with biases and LayerNorms, as Vevo2's networks hold them."""

from __future__ import annotations

from dataclasses import dataclass

from stapes.decoder.weights import Shapes
from stapes.graph import GraphBuilder, View
from stapes.weights import PackedMatrix, WeightReader
from stapes.weights.reader import F32, Arrange


@dataclass(frozen=True, eq=False)
class Affine:
    """A matrix [out, in] and its bias f32 [out]."""

    matrix: PackedMatrix
    bias: F32


@dataclass(frozen=True, eq=False)
class Norm:
    """LayerNorm's weight and bias, f32 [width] each."""

    weight: F32
    bias: F32

    def apply(self, g: GraphBuilder, x: View, eps: float) -> View:
        """The op."""
        return g.layer_norm(x, self.weight, self.bias, eps)


def affine_shapes(name: str, out: int, *inputs: int) -> Shapes:
    """A weight [out, *inputs] and its bias [out]; without inputs those of a LayerNorm."""
    return {f"{name}.weight": (out, *inputs), f"{name}.bias": (out,)}


def read_affine(
    reader: WeightReader, name: str, arrange: Arrange | None = None, *, exact: bool = False
) -> Affine:
    """The tensors `name`.weight and `name`.bias."""
    matrix = reader.matrix(f"{name}.weight", arrange=arrange, exact=exact)
    return Affine(matrix, reader.vector(f"{name}.bias"))


def read_norm(reader: WeightReader, name: str) -> Norm:
    """The tensors `name`.weight and `name`.bias."""
    return Norm(reader.vector(f"{name}.weight"), reader.vector(f"{name}.bias"))
