"""The builder: describes a network as calls and turns it into a plan."""

from __future__ import annotations

from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from stapes.graph.ops import OPS
from stapes.graph.plan import Buffer, Element, Op, Plan, View
from stapes.weights import PackedMatrix

_T = TypeVar("_T")
Activation = Literal["none", "gelu", "silu"]
_ACTIVATIONS: dict[Activation, int] = {"none": 0, "gelu": 1, "silu": 2}


class GraphBuilder:
    """Collects ops; `build` places their results in as little memory as their lifetimes allow."""

    def __init__(self, *dims: str) -> None:
        self._dims = dims
        self._buffers: list[Buffer] = []
        self._inputs: dict[str, View] = {}
        self._outputs: dict[str, View] = {}
        self._ops: list[Op] = []
        self._matrices: list[PackedMatrix] = []
        self._vectors: list[NDArray[np.float32]] = []

    # -- inputs and outputs -------------------------------------------------------------------

    def input(self, name: str, dim: str, width: int, per_row: int = 1) -> View:
        """An f32 input [count(dim) * per_row, width]."""
        view = self._new(self._fresh(name), dim, width, per_row)
        self._inputs[name] = view
        return view

    def index_input(self, name: str, dim: str) -> View:
        """An i32 input [count(dim)]."""
        view = self._new(self._fresh(name), dim, 1, 1, "i32")
        self._inputs[name] = view
        return view

    def output(self, name: str, view: View) -> None:
        """Name a result, whole, as an output."""
        named = {v.buffer for v in (*self._inputs.values(), *self._outputs.values())}
        if view.start or view.stride != view.width or view.buffer in named:
            raise ValueError(f"output {name} is not a whole result, or has a name already")
        self._outputs[self._fresh(name)] = view

    # -- ops, in the order of graph.ops.OPS ----------------------------------------------------

    def embed(self, ids: View, table: PackedMatrix) -> View:
        """Rows of `table` [vocab, width] for i32 ids [dim] -> [dim, width]."""
        return self._op("embed", [ids], self._like(ids, table.in_features), matrices=[table])

    def set_rows(self, x: View, values: View, index: View) -> View:
        """X with row index[i] replaced by values[i] -> like x."""
        return self._op("set_rows", [x, values, index], self._like(x, x.width))

    def take_rows(self, x: View, index: View) -> View:
        """Row index[i] of x -> [index's dim, x's width]."""
        return self._op("take_rows", [x, index], self._like(index, x.width))

    def linear(
        self,
        x: View,
        matrix: PackedMatrix,
        bias: NDArray[np.float32] | None = None,
        activation: Activation = "none",
    ) -> View:
        """Affine map and activation -> [rows, out_features]."""
        return self._op(
            "linear",
            [x],
            self._like(x, matrix.out_features),
            matrices=[matrix],
            vectors=[] if bias is None else [bias],
            ints=[_ACTIVATIONS[activation]],
        )

    def conv2d(
        self,
        x: View,
        height: int,
        width: int,
        matrix: PackedMatrix,
        bias: NDArray[np.float32],
        activation: Activation = "none",
    ) -> View:
        """3x3 convolution, stride 2, padding 1, over height * width pixels -> halved pixels."""
        pixels = ((height + 1) // 2) * ((width + 1) // 2)
        return self._op(
            "conv2d",
            [x],
            self._new("conv2d", x.buffer.dim, matrix.out_features, pixels),
            matrices=[matrix],
            vectors=[bias],
            ints=[_ACTIVATIONS[activation], height, width],
        )

    def depthwise_conv(
        self,
        x: View,
        weight: NDArray[np.float32],
        bias: NDArray[np.float32],
        starts: View,
        ends: View,
    ) -> View:
        """Each channel of rows starts[r]..ends[r]-1 by a weight [odd taps, width] -> like x."""
        inputs, vectors = [x, starts, ends], [np.ravel(weight), bias]
        return self._op("depthwise_conv", inputs, self._like(x, x.width), vectors=vectors)

    def rms_norm(self, x: View, weight: NDArray[np.float32], eps: float, groups: int = 1) -> View:
        """RMSNorm of each of `groups` equal slices of every row -> like x."""
        return self._op(
            "rms_norm", [x], self._like(x, x.width), vectors=[weight], ints=[groups], floats=[eps]
        )

    def adaptive_rms_norm(self, x: View, scales: View, index: View, eps: float) -> View:
        """RMSNorm of every row, by row index[r] of `scales` [any dim, x's width] -> like x."""
        inputs = [x, scales, index]
        return self._op("adaptive_rms_norm", inputs, self._like(x, x.width), floats=[eps])

    def layer_norm(
        self, x: View, weight: NDArray[np.float32], bias: NDArray[np.float32], eps: float
    ) -> View:
        """LayerNorm of every row -> like x."""
        return self._op(
            "layer_norm", [x], self._like(x, x.width), vectors=[weight, bias], floats=[eps]
        )

    def rope_angles(self, positions: View, inv_freq: NDArray[np.float32]) -> View:
        """Cosines and sines of position * inv_freq -> [dim, 2 * inv_freq.size]."""
        output = self._like(positions, 2 * inv_freq.size)
        return self._op("rope_angles", [positions], output, vectors=[inv_freq])

    def rope(self, x: View, angles: View) -> View:
        """Half-split rotation of every head of x by `angles` -> like x."""
        return self._op("rope", [x, angles], self._like(x, x.width))

    def cached_attention(
        self,
        q: View,
        k: View,
        v: View,
        sequences: View,
        positions: View,
        *,
        layer: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
    ) -> View:
        """Store k and v, attend to the row's sequence up to its position -> like q."""
        inputs = [q, k, v, sequences, positions]
        ints = [layer, heads, kv_heads, head_dim]
        return self._op("cached_attention", inputs, self._like(q, q.width), ints=ints)

    def window_attention(
        self, q: View, k: View, v: View, starts: View, ends: View, *, heads: int, head_dim: int
    ) -> View:
        """Attend to rows starts[r]..ends[r]-1 -> like q."""
        inputs = [q, k, v, starts, ends]
        return self._op("window_attention", inputs, self._like(q, q.width), ints=[heads, head_dim])

    def silu_gate(self, gate: View, up: View) -> View:
        """SiLU of gate, times up -> like gate."""
        return self._op("silu_gate", [gate, up], self._like(gate, gate.width))

    def gelu(self, x: View) -> View:
        """GELU with erf -> like x."""
        return self._op("gelu", [x], self._like(x, x.width))

    def add(self, a: View, b: View) -> View:
        """Sum of a and b -> like a."""
        return self._op("add", [a, b], self._like(a, a.width))

    def add_periodic(self, x: View, table: NDArray[np.float32]) -> View:
        """x[r] + table[r mod len(table)]; table is [period, width]."""
        return self._op("add_periodic", [x], self._like(x, x.width), vectors=[np.ravel(table)])

    def keep_columns(self, x: View, rows: View, starts: View, ends: View) -> View:
        """X with -inf outside the ranges starts[i]..ends[i]-1 of row rows[i] -> like x."""
        inputs = [x, rows, starts, ends]
        return self._op("keep_columns", inputs, self._like(x, x.width))

    def argmax(self, x: View) -> View:
        """First maximum of every row, -1 for a row with a NaN -> i32 [rows]."""
        output = self._new("argmax", x.buffer.dim, 1, x.per_row, "i32")
        return self._op("argmax", [x], output)

    # -- building ------------------------------------------------------------------------------

    def build(self) -> Plan:
        """The plan of all ops so far.

        Raises:
            ValueError: a dimension has no input that would tell its size.
        """
        unknown = set(self._dims) - {view.buffer.dim for view in self._inputs.values()}
        if unknown:
            raise ValueError(f"no input has the dimension {', '.join(sorted(unknown))}")
        return Plan(
            dims=self._dims,
            buffers=tuple(self._buffers),
            slots=tuple(self._assign_slots()),
            inputs=dict(self._inputs),
            outputs=dict(self._outputs),
            ops=tuple(self._ops),
            matrices=tuple(self._matrices),
            vectors=tuple(self._vectors),
        )

    def _assign_slots(self) -> list[int]:
        """A slot for each buffer; -1 for inputs and outputs, which live in the caller's memory.

        Buffers of one size share a slot when their lifetimes do not overlap, whatever their
        dimensions: a run gives a slot what its largest buffer takes. Op i's result is placed before
        its operands are freed, so no op writes over what it reads.
        """
        external = {v.buffer.index for v in (*self._inputs.values(), *self._outputs.values())}
        last_use = {view.buffer.index: i for i, op in enumerate(self._ops) for view in op.inputs}
        slots = [-1] * len(self._buffers)
        free: dict[int, list[int]] = {}
        count = 0
        for i, op in enumerate(self._ops):
            result = op.output.buffer
            if result.index not in external:
                reusable = free.setdefault(result.row_elements, [])
                if not reusable:
                    reusable.append(count)
                    count += 1
                slots[result.index] = reusable.pop()
            for buffer in {view.buffer for view in op.inputs} | {result}:
                if slots[buffer.index] >= 0 and last_use.get(buffer.index, i) == i:
                    free[buffer.row_elements].append(slots[buffer.index])
        return slots

    def _fresh(self, name: str) -> str:
        if name in self._inputs or name in self._outputs:
            raise ValueError(f"the name {name} is taken")
        return name

    def _new(
        self, name: str, dim: str, width: int, per_row: int = 1, element: Element = "f32"
    ) -> View:
        if dim not in self._dims:
            raise ValueError(f"{name}: the plan has no dimension {dim}")
        buffer = Buffer(len(self._buffers), name, element, dim, width * per_row)
        self._buffers.append(buffer)
        return View(buffer, per_row, width, 0, width)

    def _like(self, view: View, width: int) -> View:
        return self._new(f"{len(self._ops)}", view.buffer.dim, width, view.per_row)

    def _op(
        self,
        kind: str,
        inputs: list[View],
        output: View,
        *,
        matrices: list[PackedMatrix] | None = None,
        vectors: list[NDArray[np.float32]] | None = None,
        ints: list[int] | None = None,
        floats: list[float] | None = None,
    ) -> View:
        assert len(inputs) == len(OPS[kind].inputs)
        op = Op(
            kind,
            tuple(inputs),
            output,
            tuple(_index(self._matrices, m) for m in matrices or []),
            tuple(_index(self._vectors, v) for v in vectors or []),
            tuple(ints or []),
            tuple(floats or []),
        )
        self._ops.append(op)
        return output


def _index(items: list[_T], item: _T) -> int:
    """Position of `item` itself in `items`, appended when it is new."""
    for i, known in enumerate(items):
        if known is item:
            return i
    items.append(item)
    return len(items) - 1
