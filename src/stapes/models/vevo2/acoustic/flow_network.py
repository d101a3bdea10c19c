"""The plans of flow matching: what is computed once for an utterance, and what for every step.

All rows of a step run together: those of the conditional pass (prompt, then target), then those of
the unconditional pass (target alone), each attending to its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stapes.graph import GraphBuilder, Plan, View
from stapes.models.vevo2.acoustic.config import FlowMatchingSpec
from stapes.models.vevo2.acoustic.flow_weights import FlowLayerWeights, FlowWeights, Mlp
from stapes.models.vevo2.affine import Affine

F32 = NDArray[np.float32]

_EPS = 1e-6  # of the adaptive RMSNorm (Amphion, llama_nar.py)
_ROPE_THETA = 10000.0  # transformers' default for Llama, which the reference keeps
_STEP_PERIOD = 10000.0  # of the step embedding


def step_embedding(times: NDArray[np.float64], size: int) -> F32:
    """Sines, then cosines, of times [n] from 0 to 1 at falling rates -> [n, size]."""
    half = size // 2
    rates = np.exp(np.arange(half) * -(np.log(_STEP_PERIOD) / max(half - 1, 1)))
    angles = times[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def build_codebook(spec: FlowMatchingSpec, weights: FlowWeights) -> Plan:
    """Codes [codes] -> rows [codes, hidden]."""
    g = GraphBuilder("codes")
    g.output("rows", g.embed(g.index_input("codes", "codes"), weights.codebook))
    return g.build()


def build_doubling(spec: FlowMatchingSpec, weights: Affine) -> Plan:
    """Pairs of neighbours [pairs, 2 * hidden] -> the two rows between them, [pairs, 2 * hidden]."""
    g = GraphBuilder("pairs")
    pairs = g.input("pairs", "pairs", 2 * spec.hidden_size)
    g.output("between", g.linear(pairs, weights.matrix, weights.bias, "gelu"))
    return g.build()


def build_condition(spec: FlowMatchingSpec, weights: FlowWeights) -> Plan:
    """Rows of the condition at the frames' rate [rows, hidden] -> what is added to the mel's."""
    g = GraphBuilder("rows")
    g.output("condition", _mlp(g, g.input("rows", "rows", spec.hidden_size), weights.cond_mlp))
    return g.build()


def build_steps(spec: FlowMatchingSpec, weights: FlowWeights) -> Plan:
    """Step embeddings [steps, hidden] -> scales of all norms [steps, (2 * layers + 1) * hidden]."""
    g = GraphBuilder("steps")
    step = _mlp(g, g.input("embeddings", "steps", spec.hidden_size), weights.step_mlp)
    g.output("scales", g.linear(step, weights.norm_scales.matrix, weights.norm_scales.bias))
    return g.build()


def build_body(spec: FlowMatchingSpec, weights: FlowWeights) -> Plan:
    """One step: mel rows and their condition -> the flow of the rows that `targets` names.

    Inputs: mel [rows, mel_dim]; condition [rows, hidden]; scales [steps, (2 * layers + 1) * hidden]
    and which of them a row takes: row_steps [rows], target_steps [targets]; positions, starts and
    ends [rows]; targets [targets]. Output: flow [targets, mel_dim].
    """
    return _Body(spec, weights).build()


class _Body:
    """Builds the body's plan: its inputs, and what the layers share."""

    def __init__(self, spec: FlowMatchingSpec, weights: FlowWeights) -> None:
        self._spec, self._weights = spec, weights
        self._g = g = GraphBuilder("rows", "steps", "targets")
        hidden, norms = spec.hidden_size, 2 * spec.num_layers + 1
        self._mel = g.input("mel", "rows", spec.mel_dim)
        self._condition = g.input("condition", "rows", hidden)
        self._scales = g.input("scales", "steps", norms * hidden).split(*[hidden] * norms)
        self._row_steps = g.index_input("row_steps", "rows")
        self._windows = g.index_input("starts", "rows"), g.index_input("ends", "rows")
        self._targets = g.index_input("targets", "targets")
        self._target_steps = g.index_input("target_steps", "targets")
        inv_freq = _ROPE_THETA ** (-np.arange(0, spec.head_dim, 2) / spec.head_dim)
        positions = g.index_input("positions", "rows")
        self._angles = g.rope_angles(positions, inv_freq.astype(np.float32))

    def build(self) -> Plan:
        """The plan; behind the last layer's attention the targets alone are needed."""
        g, steps = self._g, self._row_steps
        x = g.add(_mlp(g, self._mel, self._weights.mel_mlp), self._condition)
        for i, layer in enumerate(self._weights.layers):
            attended = self._attention(layer, self._norm(x, 2 * i, steps))
            if i == self._spec.num_layers - 1:
                attended, x = (g.take_rows(rows, self._targets) for rows in (attended, x))
                steps = self._target_steps
            x = g.add(x, g.linear(attended, layer.o))
            x = g.add(x, self._gated(layer, self._norm(x, 2 * i + 1, steps)))
        x = self._norm(x, 2 * self._spec.num_layers, steps)
        g.output("flow", _mlp(g, x, self._weights.mel_out_mlp))
        return g.build()

    def _norm(self, x: View, number: int, steps: View) -> View:
        return self._g.adaptive_rms_norm(x, self._scales[number], steps, _EPS)

    def _attention(self, layer: FlowLayerWeights, x: View) -> View:
        g, hidden = self._g, self._spec.hidden_size
        qk, v = g.linear(x, layer.qkv).split(2 * hidden, hidden)
        q, k = g.rope(qk, self._angles).split(hidden, hidden)
        heads, head_dim = self._spec.num_heads, self._spec.head_dim
        return g.window_attention(q, k, v, *self._windows, heads=heads, head_dim=head_dim)

    def _gated(self, layer: FlowLayerWeights, x: View) -> View:
        g, intermediate = self._g, self._spec.intermediate_size
        gate, up = g.linear(x, layer.gate_up).split(intermediate, intermediate)
        return g.linear(g.silu_gate(gate, up), layer.down)


def _mlp(g: GraphBuilder, x: View, mlp: Mlp) -> View:
    hidden = g.linear(x, mlp.first.matrix, mlp.first.bias, "silu")
    return g.linear(hidden, mlp.second.matrix, mlp.second.bias)
