"""A checkpoint's decoder tensors -> packed weights. Fusions are data, not code paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.spec import DecoderSpec
from stapes.errors import CheckpointError
from stapes.tensors import QuantisedTensor
from stapes.weights import MatrixPacker, PackedMatrix
from stapes.weights.pack import Stored

F32 = NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]


class TensorLike(Protocol):
    """A named tensor: stored words (float32, float16, or uint16 for bf16) or f32."""

    def raw(self) -> NDArray[Any]:
        """The stored words, in the tensor's shape."""
        ...

    def to_f32(self) -> F32:
        """The values as f32."""
        ...


class TensorSource(Protocol):
    """Where tensors come from: an open checkpoint, or a maker of random ones."""

    def __getitem__(self, name: str) -> TensorLike: ...

    def release(self, name: str) -> None:
        """A tensor's memory is not needed any more."""
        ...


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """One decoder layer; qkv and gate_up are fused by stacking their outputs."""

    input_norm: F32
    qkv: PackedMatrix
    qkv_bias: F32 | None
    q_norm: F32 | None
    k_norm: F32 | None
    o: PackedMatrix
    post_attention_norm: F32
    gate_up: PackedMatrix
    down: PackedMatrix


@dataclass(frozen=True, eq=False)
class DecoderWeights:
    """All weights of a decoder. When tied, head is the embedding itself: one copy in memory."""

    embedding: PackedMatrix
    layers: tuple[LayerWeights, ...]
    final_norm: F32
    head: PackedMatrix

    def matrices(self) -> Iterator[PackedMatrix]:
        """Every matrix once."""
        yield self.embedding
        for layer in self.layers:
            yield from (layer.qkv, layer.o, layer.gate_up, layer.down)
        if self.head is not self.embedding:
            yield self.head

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices in memory."""
        return sum(matrix.nbytes for matrix in self.matrices())


def expected_tensors(spec: DecoderSpec) -> Shapes:
    """Names and shapes of every tensor that the spec's checkpoint must hold."""
    names, hidden = spec.names, spec.hidden_size
    shapes: Shapes = {
        names.token_embedding: (spec.vocab_size, hidden),
        names.final_norm: (hidden,),
    }
    if not spec.tie_word_embeddings:
        shapes[names.lm_head] = (spec.head_size, hidden)
    for i in range(spec.num_hidden_layers):
        for name, shape in _layer_tensors(spec).items():
            shapes[f"{names.layer_prefix}.{i}.{name}"] = shape
    return shapes


def _layer_tensors(spec: DecoderSpec) -> Shapes:
    hidden, inter = spec.hidden_size, spec.intermediate_size
    shapes: Shapes = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.o_proj.weight": (hidden, spec.q_size),
        "mlp.gate_proj.weight": (inter, hidden),
        "mlp.up_proj.weight": (inter, hidden),
        "mlp.down_proj.weight": (hidden, inter),
    }
    for name, size in _qkv_parts(spec).items():
        shapes[f"self_attn.{name}.weight"] = (size, hidden)
        if spec.attention_bias:
            shapes[f"self_attn.{name}.bias"] = (size,)
    if spec.qk_norm:
        shapes["self_attn.q_norm.weight"] = shapes["self_attn.k_norm.weight"] = (spec.head_dim,)
    return shapes


def _qkv_parts(spec: DecoderSpec) -> dict[str, int]:
    if spec.packed_qkv:
        return {"qkv_proj": spec.q_size + 2 * spec.kv_size}
    return {"q_proj": spec.q_size, "k_proj": spec.kv_size, "v_proj": spec.kv_size}


def load_weights(source: TensorSource, spec: DecoderSpec, packer: MatrixPacker) -> DecoderWeights:
    """Pack the decoder's tensors; the source has been checked against `expected_tensors`."""
    reader = TensorReader(source, packer)
    names = spec.names
    embedding = reader.matrix(names.token_embedding)
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(
            _load_layer(reader, spec, f"{names.layer_prefix}.{i}")
            for i in range(spec.num_hidden_layers)
        ),
        final_norm=reader.vector(names.final_norm),
        head=embedding if spec.tie_word_embeddings else reader.matrix(names.lm_head),
    )


def _load_layer(reader: TensorReader, spec: DecoderSpec, prefix: str) -> LayerWeights:
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    parts = [f"{attention}.{name}" for name in _qkv_parts(spec)]
    norm = reader.vector if spec.qk_norm else lambda name: None
    return LayerWeights(
        input_norm=reader.vector(f"{prefix}.input_layernorm.weight"),
        qkv=reader.matrix(*(f"{part}.weight" for part in parts)),
        qkv_bias=reader.vector(*(f"{p}.bias" for p in parts)) if spec.attention_bias else None,
        q_norm=norm(f"{attention}.q_norm.weight"),
        k_norm=norm(f"{attention}.k_norm.weight"),
        o=reader.matrix(f"{attention}.o_proj.weight"),
        post_attention_norm=reader.vector(f"{prefix}.post_attention_layernorm.weight"),
        gate_up=reader.matrix(f"{mlp}.gate_proj.weight", f"{mlp}.up_proj.weight"),
        down=reader.matrix(f"{mlp}.down_proj.weight"),
    )


class TensorReader:
    """Takes tensors from a source, packs them, and lets go of the source's pages."""

    def __init__(self, source: TensorSource, packer: MatrixPacker) -> None:
        self._source = source
        self._packer = packer

    def vector(self, *names: str) -> F32:
        """f32 vectors, joined in the order of their names; CheckpointError unless finite."""
        parts = [self._source[name].to_f32() for name in names]
        for name, part in zip(names, parts, strict=True):
            if not np.isfinite(part).all():
                raise CheckpointError(f"Tensor {name} holds a value that is not finite.")
        return np.concatenate(parts)

    def matrix(self, *names: str) -> PackedMatrix:
        """Matrices stacked in the order of their names, in the packer's format."""
        parts = [_stored(self._source[name]) for name in names]
        packed = self._packer.stack(" or ".join(names), parts)
        for name in names:
            self._source.release(name)
        return packed


def _stored(tensor: TensorLike) -> Stored:
    """Quantised rows as they are, for the packer to read in pieces; of all others the words."""
    return tensor if isinstance(tensor, QuantisedTensor) else tensor.raw()
