"""Types of the native core (native/bindings.cpp)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PAGE_POSITIONS: int

ViewTuple = tuple[int, int, int, int, int]
BufferTuple = tuple[str, str, int, int, int]
OpTuple = tuple[str, list[ViewTuple], ViewTuple, list[int], list[int], list[int], list[float]]

def instruction_sets() -> list[str]: ...
def packed_bytes(format: str, out: int, in_: int) -> int: ...
def pack(
    engine: Engine,
    format: str,
    source_type: str,
    out: int,
    in_: int,
    source: NDArray[np.uint8],
    packed: NDArray[np.uint8],
) -> bool: ...
def stream_sum(engine: Engine, array: NDArray[np.float32]) -> float: ...
def unpack_row(engine: Engine, matrix: Matrix, row: int, y: NDArray[np.float32]) -> None: ...

class Engine:
    def __init__(self, threads: int, instruction_set: str = "auto") -> None: ...
    @property
    def threads(self) -> int: ...
    @property
    def instruction_set(self) -> str: ...

class Matrix:
    def __init__(self, format: str, out: int, in_: int, data: NDArray[np.uint8]) -> None: ...
    @property
    def format(self) -> str: ...
    @property
    def out(self) -> int: ...
    @property
    def in_(self) -> int: ...

class KvCache:
    def __init__(self, layers: int, kv_heads: int, head_dim: int, type: str) -> None: ...
    @property
    def length(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def page_bytes(self) -> int: ...
    def reserve(self, positions: int) -> None: ...
    def truncate(self, length: int) -> None: ...
    def clone(self) -> KvCache: ...

class Plan:
    def __init__(
        self,
        dims: list[str],
        buffers: list[BufferTuple],
        ops: list[OpTuple],
        matrices: list[Matrix],
        vectors: list[NDArray[np.float32]],
        activation_bits: int = 13,
    ) -> None: ...
    def run(
        self,
        engine: Engine,
        counts: list[int],
        arrays: Sequence[NDArray[np.float32] | NDArray[np.int32]],
        caches: Sequence[KvCache],
        end_times: NDArray[np.int64] | None = None,
    ) -> None: ...
