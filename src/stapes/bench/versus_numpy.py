"""NumPy's sgemm on the same numbers of rows, beside `stapes bench kernels`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stapes.bench.kernels import KernelBench


class NumpyPeer:
    """f32 weights [in, out], whatever our format is; as many threads as NumPy's BLAS takes."""

    name = "numpy"

    def __init__(self, bench: KernelBench, threads: int) -> None:
        weights = np.ascontiguousarray(bench.matrix().T)
        self._bench = bench
        self.nbytes = weights.nbytes
        self.copies = bench.copies(weights.nbytes)
        self._weights = [weights.copy() for _ in range(self.copies)]

    def about(self) -> dict[str, object]:
        """See `Peer.about`."""
        return {"version": np.__version__, "weights": "f32"}

    def layers(self, format: str) -> NumpyPeer:
        """The same ones for every format."""
        return self

    def runner(self, rows: int) -> Callable[[], object]:
        """See `Layers.runner`."""
        x = self._bench.inputs(rows)
        y = np.empty((rows, self._bench.out_features), np.float32)

        def run() -> None:
            for weights in self._weights:
                np.matmul(x, weights, out=y)

        return run
