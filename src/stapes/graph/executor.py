"""What executors have in common: how a run's arrays are checked and its counts found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stapes.graph.plan import Element, Plan, View

Array = NDArray[np.float32] | NDArray[np.int32]


class KvCacheLike(Protocol):
    """The keys and values of one sequence, held by an executor."""

    @property
    def length(self) -> int:
        """Positions that are filled."""
        ...

    @property
    def capacity(self) -> int:
        """Positions for which there is room."""
        ...

    @property
    def page_bytes(self) -> int:
        """Bytes of one bucket of 512 positions."""
        ...

    def reserve(self, positions: int) -> None:
        """Make room, keeping what is there; MemoryError leaves the cache as it was."""
        ...

    def truncate(self, length: int) -> None:
        """Forget positions from `length` on; ValueError beyond the present length."""
        ...

    def clone(self) -> KvCacheLike:
        """A cache with the same content, which then goes its own way."""
        ...


class Executor(Protocol):
    """Runs one plan, for any number of rows."""

    plan: Plan

    def run(
        self, inputs: Mapping[str, Array], caches: Sequence[KvCacheLike] = ()
    ) -> dict[str, Array]:
        """Run the plan.

        Args:
            inputs: every input by name: f32 [count * per_row, width] or i32 [count].
            caches: one for each number that an input `sequences` names.

        Returns:
            The outputs by name, in the same shapes.

        Raises:
            ValueError: shapes or types do not fit. IndexError: an index is out of range.
        """
        ...

    def new_cache(self, layers: int, kv_heads: int, head_dim: int, type: str) -> KvCacheLike:
        """An empty cache that this executor can use; type is "f16", "f32" or "bf16"."""
        ...


def checked_inputs(
    plan: Plan, inputs: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, int]]:
    """The inputs in the plan's order and types, and the count of every dimension."""
    if set(inputs) != set(plan.inputs):
        raise ValueError(f"inputs are {sorted(plan.inputs)}, not {sorted(inputs)}")
    arrays: dict[str, Array] = {}
    counts: dict[str, int] = {}
    for name, view in plan.inputs.items():
        array = _typed(name, inputs[name], view.buffer.element)
        count, rest = divmod(array.size, view.buffer.row_elements)
        whole = array.shape[-1:] == (view.width,) or (view.width == 1 and array.ndim == 1)
        if rest or not whole or counts.setdefault(view.buffer.dim, count) != count:
            raise ValueError(f"input {name} has shape {array.shape}, which does not fit the others")
        arrays[name] = array
    return arrays, counts


def output_array(view: View, counts: Mapping[str, int]) -> Array:
    """Memory for an output: f32 [rows, width] or i32 [rows]."""
    rows = counts[view.buffer.dim] * view.per_row
    if view.buffer.element == "i32":
        return np.empty(rows, np.int32)
    return np.empty((rows, view.width), np.float32)


def _typed(name: str, values: Array, element: Element) -> Array:
    """The values as an array that the core can take: contiguous and writable, f32 or i32."""
    array = np.asarray(values)
    if array.dtype.kind not in ("f" if element == "f32" else "iu"):
        raise ValueError(f"input {name} is {array.dtype}, not {element}")
    if element == "f32":
        return np.require(array, np.float32, ["C", "A", "W"])
    if array.dtype != np.int32 and array.size and not _fits_i32(array):
        raise ValueError(f"input {name} holds a number beyond 32 bits")
    return np.require(array, np.int32, ["C", "A", "W"])


def _fits_i32(array: NDArray[Any]) -> bool:
    limits = np.iinfo(np.int32)
    return bool(array.min() >= limits.min and array.max() <= limits.max)
