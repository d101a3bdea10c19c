"""The part of ggml's C interface that the comparison needs, typed for ctypes.

Signatures are those of ggml.h, ggml-backend.h and ggml-cpu.h of ggml 0.20. All objects stay opaque.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

TYPES = {"f32": 0, "q4": 2, "q8": 8}  # enum ggml_type: F32, Q4_0, Q8_0
_PARAMS_BYTES = 4096  # more than struct ggml_threadpool_params takes


class InitParams(ctypes.Structure):
    """struct ggml_init_params, which is passed by value."""

    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", ctypes.c_bool))


_POINTER = c_void_p
_SILENCE = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)(lambda level, text, data: None)

# name: result, arguments
_BASE: dict[str, tuple[Any, ...]] = {
    "ggml_version": (c_char_p,),
    "ggml_log_set": (None, _POINTER, _POINTER),
    "ggml_init": (_POINTER, InitParams),
    "ggml_free": (None, _POINTER),
    "ggml_new_tensor_2d": (_POINTER, _POINTER, c_int, c_int64, c_int64),
    "ggml_mul_mat": (_POINTER, _POINTER, _POINTER, _POINTER),
    "ggml_nbytes": (c_size_t, _POINTER),
    "ggml_row_size": (c_size_t, c_int, c_int64),
    "ggml_tensor_overhead": (c_size_t,),
    "ggml_new_graph_custom": (_POINTER, _POINTER, c_size_t, ctypes.c_bool),
    "ggml_graph_overhead_custom": (c_size_t, c_size_t, ctypes.c_bool),
    "ggml_build_forward_expand": (None, _POINTER, _POINTER),
    "ggml_quantize_chunk": (
        *(c_size_t, c_int, _POINTER, _POINTER),
        *(c_int64, c_int64, c_int64, _POINTER),
    ),
    "ggml_threadpool_params_init": (None, _POINTER, c_int),
    "ggml_backend_reg_dev_get": (_POINTER, _POINTER, c_size_t),
    "ggml_backend_reg_get_proc_address": (_POINTER, _POINTER, c_char_p),
    "ggml_backend_dev_supports_op": (ctypes.c_bool, _POINTER, _POINTER),
    "ggml_backend_dev_buffer_type": (_POINTER, _POINTER),
    "ggml_backend_buft_name": (c_char_p, _POINTER),
    "ggml_backend_buft_alloc_buffer": (_POINTER, _POINTER, c_size_t),
    "ggml_backend_alloc_ctx_tensors_from_buft": (_POINTER, _POINTER, _POINTER),
    "ggml_backend_buffer_free": (None, _POINTER),
    "ggml_backend_buffer_get_base": (_POINTER, _POINTER),
    "ggml_backend_tensor_alloc": (c_int, _POINTER, _POINTER, _POINTER),
    "ggml_backend_tensor_set": (None, _POINTER, _POINTER, c_size_t, c_size_t),
    "ggml_backend_tensor_get": (None, _POINTER, _POINTER, c_size_t, c_size_t),
    "ggml_backend_graph_compute": (c_int, _POINTER, _POINTER),
    "ggml_backend_free": (None, _POINTER),
}
_CPU: dict[str, tuple[Any, ...]] = {
    "ggml_backend_cpu_reg": (_POINTER,),
    "ggml_backend_cpu_init": (_POINTER,),
    "ggml_backend_cpu_set_n_threads": (None, _POINTER, c_int),
    "ggml_backend_cpu_set_threadpool": (None, _POINTER, _POINTER),
    "ggml_threadpool_new": (_POINTER, _POINTER),
    "ggml_threadpool_pause": (None, _POINTER),
    "ggml_threadpool_free": (None, _POINTER),
    "ggml_cpu_has_avx2": (c_int,),
    "ggml_cpu_has_avx512": (c_int,),
}


class Ggml:
    """Its functions as attributes, its CPU device, and the buffer types of that device.

    Args:
        folder: where libggml-base.so and libggml-cpu.so are.

    Raises:
        OSError, AttributeError: a library or a function is missing.
    """

    def __init__(self, folder: Path) -> None:
        base = ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
        cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"))
        self._functions = _typed(base, _BASE) | _typed(cpu, _CPU)
        self.call("ggml_log_set", _SILENCE, None)  # it tells of every tensor that it repacks
        reg = self.call("ggml_backend_cpu_reg")
        self.device = self.call("ggml_backend_reg_dev_get", reg, 0)
        self.plain = self.call("ggml_backend_dev_buffer_type", self.device)
        self.extra = self._extra_buffer_types(reg)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function by its C name."""
        return self._functions[name](*arguments)

    def _extra_buffer_types(self, reg: int) -> list[int]:
        """Buffer types in which the CPU device keeps weights in layouts of its own."""
        name = b"ggml_backend_dev_get_extra_bufts"
        address = self.call("ggml_backend_reg_get_proc_address", reg, name)
        if not address:
            return []
        listed = ctypes.CFUNCTYPE(ctypes.POINTER(c_void_p), c_void_p)(address)(self.device)
        found: list[int] = []
        while pointer := listed[len(found)]:  # ends with a null pointer
            found.append(pointer)
        return found

    def threadpool(self, threads: int) -> int:
        """A pool of threads that stay, with the default polling."""
        params = ctypes.create_string_buffer(_PARAMS_BYTES)
        self.call("ggml_threadpool_params_init", params, threads)
        pool: int = self.call("ggml_threadpool_new", params)
        return pool

    def instruction_set(self) -> str:
        """What its CPU library was compiled for."""
        has = {name: self.call(f"ggml_cpu_has_{name}") for name in ("avx512", "avx2")}
        return next((name for name, there in has.items() if there), "less than avx2")


def _typed(library: ctypes.CDLL, signatures: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    functions = {}
    for name, (result, *arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    return functions
