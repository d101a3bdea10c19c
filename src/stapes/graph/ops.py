"""Every op of a plan: its operands and its meaning.

The builder makes ops from this table, the native core and the reference executor each implement
every row of it, and a table-driven test runs every row through both. Shapes are [rows, width];
`dim` is a row dimension of the plan.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OpKind:
    """One row of the table: operand names in order, and what the op computes."""

    name: str
    inputs: tuple[str, ...]
    meaning: str
    matrices: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    ints: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()


_KINDS = (
    OpKind(
        "embed",
        ("ids",),
        "row ids[r] of the table [vocab, width]; ids are i32",
        matrices=("table",),
    ),
    OpKind(
        "set_rows",
        ("x", "values", "index"),
        "x with row index[i] replaced by values[i]; values and index are of another dim",
    ),
    OpKind("take_rows", ("x", "index"), "row index[i] of x; the result has index's dim"),
    OpKind(
        "linear",
        ("x",),
        "activation(x @ matrix.T + bias); activation 0 none, 1 GELU (erf), 2 SiLU",
        matrices=("matrix",),
        vectors=("bias",),
        ints=("activation",),
    ),
    OpKind(
        "conv2d",
        ("x",),
        "3x3, stride 2, padding 1 over height x width pixels (rows) of channels (width); the "
        "matrix's inputs are in the order (row, column, channel)",
        matrices=("matrix",),
        vectors=("bias",),
        ints=("activation", "height", "width"),
    ),
    OpKind(
        "depthwise_conv",
        ("x", "starts", "ends"),
        "bias + sum over taps t of weight[t] * x[r + t - taps // 2], each channel on its own; rows "
        "outside starts[r]..ends[r]-1 count as zeros; weight is [odd taps * width]",
        vectors=("weight", "bias"),
    ),
    OpKind(
        "rms_norm",
        ("x",),
        "x / sqrt(mean(x^2) + eps) * weight, on each of `groups` equal slices of the row",
        vectors=("weight",),
        ints=("groups",),
        floats=("eps",),
    ),
    OpKind(
        "adaptive_rms_norm",
        ("x", "scales", "index"),
        "x / sqrt(mean(x^2) + eps) * scales[index[r]]; scales may be of another dim",
        floats=("eps",),
    ),
    OpKind(
        "layer_norm",
        ("x",),
        "(x - mean) / sqrt(variance + eps) * weight + bias",
        vectors=("weight", "bias"),
        floats=("eps",),
    ),
    OpKind(
        "rope_angles",
        ("positions",),
        "cos(position * inv_freq), then the sines; the product is rounded to f32",
        vectors=("inv_freq",),
    ),
    OpKind(
        "rope",
        ("x", "angles"),
        "half-split rotation of every head; head_dim is the width of angles",
    ),
    OpKind(
        "cached_attention",
        ("q", "k", "v", "sequences", "positions"),
        "stores k and v of each row at its position of its sequence's cache, then "
        "softmax(q . K / sqrt(head_dim)) V over positions 0..position of that sequence",
        ints=("layer", "heads", "kv_heads", "head_dim"),
    ),
    OpKind(
        "window_attention",
        ("q", "k", "v", "starts", "ends"),
        "softmax(q . K / sqrt(head_dim)) V over rows starts[r]..ends[r]-1",
        ints=("heads", "head_dim"),
    ),
    OpKind("silu_gate", ("gate", "up"), "gate * sigmoid(gate) * up"),
    OpKind("gelu", ("x",), "x / 2 * (1 + erf(x / sqrt 2))"),
    OpKind("add", ("a", "b"), "a + b"),
    OpKind("add_periodic", ("x",), "x[r] + table[r mod period]", vectors=("table",)),
    OpKind("argmax", ("x",), "i32: index of the row's first maximum, -1 if it holds a NaN"),
)

OPS: dict[str, OpKind] = {kind.name: kind for kind in _KINDS}
