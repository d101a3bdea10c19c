"""A decoder's weights, and the tensors they are read from. Fusions are data, not code paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stapes.decoder.spec import DecoderSpec
from stapes.weights import (
    CheckpointReader,
    MatrixPacker,
    PackedMatrix,
    TensorSource,
    WeightReader,
)
from stapes.weights.reader import F32

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """One decoder layer; qkv and gate_up are fused by stacking their outputs.

    Attributes:
        input_norm, post_attention_norm: [hidden] f32.
        qkv: [q_size + 2 * kv_size, hidden], rows in the order q, k, v; qkv_bias: f32, or None.
        q_norm, k_norm: [head_dim] f32, or None.
        o: [hidden, q_size].
        gate_up: [2 * intermediate, hidden], gate first. down: [hidden, intermediate].
    """

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
    """All weights of a decoder.

    Attributes:
        embedding: [vocab_size, hidden].
        layers: num_hidden_layers of them, in order.
        final_norm: [hidden] f32.
        head: [logits_size, hidden]; when tied the embedding itself, one copy in memory.
    """

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
    """Pack the decoder's tensors.

    Args:
        source: an open checkpoint, which was compared with `expected_tensors` by
            `stapes.tensors.check_tensors`; shapes are not looked at again here. Pages of what has
            been packed are let go of.
        spec: which tensors, by which names.
        packer: into which format; vectors are always f32.

    Raises:
        CheckpointError: a tensor is missing, of a type that cannot be read, or holds a value that
            is not finite or too large for the format.
    """
    return read_weights(CheckpointReader(source, packer), spec)


def read_weights(reader: WeightReader, spec: DecoderSpec) -> DecoderWeights:
    """The decoder's weights, from whatever a reader stands for.

    Args:
        reader: of a checkpoint or a converted file, whose names and shapes were compared with
            `expected_tensors`.
        spec: which tensors, by which names.

    Raises:
        CheckpointError: see `load_weights`.
    """
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


def _load_layer(reader: WeightReader, spec: DecoderSpec, prefix: str) -> LayerWeights:
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
