"""ggml's CPU backend on the same layers, beside `stapes bench kernels`.

The libraries come with the wheel libggml-python, which is looked for when it is asked for.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stapes.bench.ggml_api import TYPES, Ggml, InitParams
from stapes.bench.kernels import KernelBench
from stapes.errors import RequestError

_PAD = 64  # alignment of ggml's CPU buffers


def open_ggml() -> Ggml:
    """The libraries of the installed wheel.

    Raises:
        RequestError: it is not installed, or is not as this program knows it.
    """
    advice = "pip install 'stapes[bench]'"
    try:
        import libggml
    except ImportError:
        raise RequestError(f"--versus ggml needs the package libggml-python: {advice}.") from None
    try:
        return Ggml(Path(libggml.__path__[0]) / "lib64")
    except (OSError, AttributeError) as error:
        raise RequestError(
            f"--versus ggml cannot use the libraries of libggml-python {version('libggml-python')} "
            f"({error}): {advice}."
        ) from None


class GgmlPeer:
    """q8_0 and q4_0 weights, repacked where its CPU backend offers that."""

    name = "ggml"

    def __init__(self, bench: KernelBench, threads: int) -> None:
        self._bench = bench
        self._ggml = open_ggml()
        self._threads = threads
        self._buffers: dict[str, str] = {}

    def about(self) -> dict[str, object]:
        """Its version and instruction set, and the buffer type of each format's weights."""
        return {
            "version": self._ggml.call("ggml_version").decode(),
            "instruction_set": self._ggml.instruction_set(),
            "threads": self._threads,
            "buffers": self._buffers,
        }

    def layers(self, format: str) -> GgmlLayers | None:
        """See `Peer.layers`."""
        if format not in TYPES:
            return None
        layers = GgmlLayers(self._ggml, format, self._bench, self._threads)
        self._buffers[format] = layers.buffer
        return layers


class GgmlLayers:
    """Copies of one layer in ggml's memory, and a pool of threads to run them."""

    def __init__(self, ggml: Ggml, format: str, bench: KernelBench, threads: int) -> None:
        self._ggml = ggml
        self._bench = bench
        self._type = TYPES[format]
        self.nbytes = bench.out_features * self._row_bytes(self._type, bench.in_features)
        self.copies = bench.copies(self.nbytes)
        self._backend = ggml.call("ggml_backend_cpu_init")
        self._pool = ggml.threadpool(threads)
        ggml.call("ggml_backend_cpu_set_n_threads", self._backend, threads)
        ggml.call("ggml_backend_cpu_set_threadpool", self._backend, self._pool)
        weakref.finalize(self, _free_pool, ggml, self._backend, self._pool)
        buffer_type = self._buffer_type()
        self.buffer = ggml.call("ggml_backend_buft_name", buffer_type).decode()
        self._weights = self._tensors(buffer_type, self.copies)
        self._fill()

    def _row_bytes(self, type: int, width: int) -> int:
        size: int = self._ggml.call("ggml_row_size", type, width)
        return size

    def _context(self, tensors: int) -> int:
        """A context for so many tensors' descriptions, and a graph of them."""
        call = self._ggml.call
        size = tensors * call("ggml_tensor_overhead")
        size += call("ggml_graph_overhead_custom", tensors, False)
        context: int = call("ggml_init", InitParams(size, None, True))
        weakref.finalize(self, call, "ggml_free", context)
        return context

    def _tensors(self, buffer_type: int, count: int) -> list[int]:
        """Weights that lie in a buffer of this type."""
        call, bench = self._ggml.call, self._bench
        context = self._context(count)
        shape = (bench.in_features, bench.out_features)
        made = [call("ggml_new_tensor_2d", context, self._type, *shape) for _ in range(count)]
        buffer = call("ggml_backend_alloc_ctx_tensors_from_buft", context, buffer_type)
        if not buffer:
            raise MemoryError
        weakref.finalize(self, call, "ggml_backend_buffer_free", buffer)
        return made

    def _buffer_type(self) -> int:
        """The first of the extra buffer types that multiplies such weights, or the plain one."""
        ggml, bench = self._ggml, self._bench
        for candidate in ggml.extra:
            (weights,) = self._tensors(candidate, 1)
            context = self._context(2)
            x = ggml.call("ggml_new_tensor_2d", context, TYPES["f32"], bench.in_features, 1)
            product = ggml.call("ggml_mul_mat", context, weights, x)
            if ggml.call("ggml_backend_dev_supports_op", ggml.device, product):
                return candidate
        return ggml.plain  # type: ignore[no-any-return]

    def _fill(self) -> None:
        """Quantise the layer once, and hand it to every copy."""
        matrix, call = self._bench.matrix(), self._ggml.call
        stored = np.empty(self.nbytes, np.uint8)
        call(
            *("ggml_quantize_chunk", self._type, matrix.ctypes.data, stored.ctypes.data),
            *(0, *matrix.shape, None),
        )
        for tensor in self._weights:
            call("ggml_backend_tensor_set", tensor, stored.ctypes.data, 0, self.nbytes)

    def runner(self, rows: int) -> Callable[[], NDArray[np.float32]]:
        """Runs every copy once, on `rows` rows, and returns the last one's outputs [rows, out]."""
        call = self._ggml.call
        graph, output = self._graph(rows)
        y = np.empty((rows, self._bench.out_features), np.float32)

        def run() -> NDArray[np.float32]:
            status = call("ggml_backend_graph_compute", self._backend, graph)
            call("ggml_threadpool_pause", self._pool)  # or it would spin beside what runs next
            if status != 0:
                raise RuntimeError(f"ggml_backend_graph_compute returned {status}")
            call("ggml_backend_tensor_get", output, y.ctypes.data, 0, y.nbytes)
            return y

        return run

    def _graph(self, rows: int) -> tuple[int, int]:
        """A graph of all products, whose outputs share one place as ours do, and the last one."""
        call, bench = self._ggml.call, self._bench
        context = self._context(self.copies + 2)
        x = call("ggml_new_tensor_2d", context, TYPES["f32"], bench.in_features, rows)
        graph = call("ggml_new_graph_custom", context, self.copies + 2, False)
        inputs = bench.inputs(rows)
        self._place([x], inputs.nbytes)
        call("ggml_backend_tensor_set", x, inputs.ctypes.data, 0, inputs.nbytes)
        products = [call("ggml_mul_mat", context, weights, x) for weights in self._weights]
        self._place(products, rows * bench.out_features * 4)
        for product in products:
            call("ggml_build_forward_expand", graph, product)
        return graph, products[-1]

    def _place(self, tensors: list[int], nbytes: int) -> None:
        """Give all tensors the same memory."""
        call = self._ggml.call
        buffer = call("ggml_backend_buft_alloc_buffer", self._ggml.plain, nbytes + _PAD)
        weakref.finalize(self, call, "ggml_backend_buffer_free", buffer)
        base = call("ggml_backend_buffer_get_base", buffer)
        for tensor in tensors:
            call("ggml_backend_tensor_alloc", buffer, tensor, base)


def _free_pool(ggml: Ggml, backend: int, pool: int) -> None:
    ggml.call("ggml_backend_free", backend)
    ggml.call("ggml_threadpool_free", pool)
