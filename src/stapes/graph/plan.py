"""A plan as data: buffers, views of them, and a flat list of ops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stapes.weights import PackedMatrix

Element = Literal["f32", "i32"]


@dataclass(frozen=True)
class Buffer:
    """Memory of `row_elements` elements for each row of the dimension `dim`."""

    index: int
    name: str
    element: Element
    dim: str
    row_elements: int


@dataclass(frozen=True)
class View:
    """Rows of a buffer: row r starts at element r * stride + start and is `width` wide.

    There are `per_row` rows for each row of the buffer's dimension: a chunk of audio, say, has
    100 frames.
    """

    buffer: Buffer
    per_row: int
    stride: int
    start: int
    width: int

    def columns(self, start: int, width: int) -> View:
        """The part [start, start + width) of every row."""
        if start < 0 or width < 1 or start + width > self.width:
            raise ValueError(f"columns {start}..{start + width} of a view {self.width} wide")
        return replace(self, start=self.start + start, width=width)

    def split(self, *widths: int) -> list[View]:
        """Neighbouring columns of the given widths, which must add up to the view's."""
        if sum(widths) != self.width:
            raise ValueError(f"widths {widths} do not add up to {self.width}")
        starts = [sum(widths[:i]) for i in range(len(widths))]
        return [self.columns(start, width) for start, width in zip(starts, widths, strict=True)]

    def rows_of(self, width: int) -> View:
        """The same memory as rows of another width."""
        whole = self.start == 0 and self.stride == self.width
        if not whole or width < 1 or self.buffer.row_elements % width:
            raise ValueError(f"a view {self.width} wide cannot be read as rows of {width}")
        return View(self.buffer, self.buffer.row_elements // width, width, 0, width)


@dataclass(frozen=True)
class Op:
    """One step: `kind` names a row of graph.ops.OPS; matrices and vectors are indices."""

    kind: str
    inputs: tuple[View, ...]
    output: View
    matrices: tuple[int, ...] = ()
    vectors: tuple[int, ...] = ()
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Plan:
    """A network ready to run.

    Attributes:
        dims: names of the row dimensions.
        buffers: all buffers.
        slots: for each buffer the memory slot it shares, or -1 when the caller gives the memory.
        inputs, outputs: views by name.
        ops: in the order in which they run.
        matrices, vectors: the weights they name.
    """

    dims: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    slots: tuple[int, ...]
    inputs: dict[str, View]
    outputs: dict[str, View]
    ops: tuple[Op, ...]
    matrices: tuple[PackedMatrix, ...]
    vectors: tuple[NDArray[np.float32], ...]
