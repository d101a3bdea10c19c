"""The decoder's forward pass, written once as a plan."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stapes.decoder.spec import DecoderSpec
from stapes.decoder.weights import DecoderWeights, LayerWeights
from stapes.graph import GraphBuilder, Plan, View

#: What a run returns for each picked row: the greedy next id, or all logits beside it.
Want = Literal["next", "logits"]

#: Inputs of a restricted plan: which picked row, and from where to where its ids may lie.
RANGE_INPUTS = ("range_rows", "range_starts", "range_ends")


def build_plan(
    spec: DecoderSpec, weights: DecoderWeights, want: Want, restricted: bool = False
) -> Plan:
    """The plan of a decoder.

    Dimensions: `rows` of the run, `injected` embedding rows, `picked` rows whose logits are needed.
    Inputs: ids, sequences, positions [rows]; values [injected, hidden], index [injected] (the row
    each replaces); picked [picked]. Outputs: next [picked] i32 (-1: NaN) and, when
    they are wanted, logits [picked, logits_size].

    A restricted plan has a dimension `ranges` and the inputs range_rows, range_starts, range_ends
    [ranges]: logits of a picked row outside all of its ranges are -inf.
    """
    g = GraphBuilder("rows", "injected", "picked", *(["ranges"] if restricted else []))
    ids = g.index_input("ids", "rows")
    sequences, positions = g.index_input("sequences", "rows"), g.index_input("positions", "rows")
    values, index = (
        g.input("values", "injected", spec.hidden_size),
        g.index_input("index", "injected"),
    )
    picked = g.index_input("picked", "picked")

    x = g.set_rows(g.embed(ids, weights.embedding), values, index)
    angles = g.rope_angles(positions, inverse_frequencies(spec))
    for i, layer in enumerate(weights.layers):
        attended = _attention(g, spec, layer, i, x, angles, sequences, positions)
        if i == len(weights.layers) - 1:  # from here on only the picked rows matter
            x, attended = g.take_rows(x, picked), g.take_rows(attended, picked)
        x = g.add(x, g.linear(attended, layer.o))
        x = g.add(x, _mlp(g, spec, layer, x))
    logits = g.linear(g.rms_norm(x, weights.final_norm, spec.rms_norm_eps), weights.head)
    if restricted:
        logits = g.keep_columns(logits, *(g.index_input(name, "ranges") for name in RANGE_INPUTS))
    g.output("next", g.argmax(logits))
    if want == "logits":
        g.output("logits", logits)
    return g.build()


def inverse_frequencies(spec: DecoderSpec) -> NDArray[np.float32]:
    """RoPE's 1 / theta^(2i / head_dim), computed in f32 as transformers does."""
    exponents = np.arange(0, spec.head_dim, 2, dtype=np.float32) / np.float32(spec.head_dim)
    powers = np.float32(spec.rope_theta) ** exponents
    return (np.float32(1) / powers).astype(np.float32)


def _attention(
    g: GraphBuilder,
    spec: DecoderSpec,
    layer: LayerWeights,
    number: int,
    x: View,
    angles: View,
    sequences: View,
    positions: View,
) -> View:
    qkv = g.linear(g.rms_norm(x, layer.input_norm, spec.rms_norm_eps), layer.qkv, layer.qkv_bias)
    q, k, v = qkv.split(spec.q_size, spec.kv_size, spec.kv_size)
    if layer.q_norm is not None and layer.k_norm is not None:
        q = g.rms_norm(q, layer.q_norm, spec.rms_norm_eps, groups=spec.num_attention_heads)
        k = g.rms_norm(k, layer.k_norm, spec.rms_norm_eps, groups=spec.num_key_value_heads)
    return g.cached_attention(
        g.rope(q, angles),
        g.rope(k, angles),
        v,
        sequences,
        positions,
        layer=number,
        heads=spec.num_attention_heads,
        kv_heads=spec.num_key_value_heads,
        head_dim=spec.head_dim,
    )


def _mlp(g: GraphBuilder, spec: DecoderSpec, layer: LayerWeights, x: View) -> View:
    gate_up = g.linear(g.rms_norm(x, layer.post_attention_norm, spec.rms_norm_eps), layer.gate_up)
    gate, up = gate_up.split(spec.intermediate_size, spec.intermediate_size)
    return g.linear(g.silu_gate(gate, up), layer.down)
