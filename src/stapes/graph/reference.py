"""The executor for tests: every op in NumPy, written to be obviously correct."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from stapes.graph.executor import Array, KvCacheLike, checked_inputs
from stapes.graph.ops import OPS
from stapes.graph.plan import Op, Plan, View
from stapes.options import ActivationBits
from stapes.weights import BLOCK, PackedMatrix
from stapes.weights.matrix import QUANTIZED, bf16_to_f32, f32_to_bf16

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Indices = NDArray[np.int32]

_BUCKET = 512


class ReferenceCache:
    """Keys and values [layers, kv_heads, capacity, head_dim], f32 holding rounded values."""

    def __init__(self, layers: int, kv_heads: int, head_dim: int, type: str) -> None:
        self.type = type
        self.length = 0
        self.keys = np.zeros((layers, kv_heads, 0, head_dim), np.float32)
        self.values = self.keys.copy()

    @property
    def capacity(self) -> int:
        """Positions for which there is room."""
        return self.keys.shape[2]

    @property
    def page_bytes(self) -> int:
        """Bytes that a bucket of 512 positions would take in the storage type."""
        layers, kv_heads, _, head_dim = self.keys.shape
        return 2 * layers * kv_heads * _BUCKET * head_dim * (4 if self.type == "f32" else 2)

    def reserve(self, positions: int) -> None:
        """Make room in buckets of 512."""
        buckets = -(-positions // _BUCKET)
        missing = max(0, buckets * _BUCKET - self.capacity)
        widths = [(0, 0), (0, 0), (0, missing), (0, 0)]
        self.keys, self.values = np.pad(self.keys, widths), np.pad(self.values, widths)

    def truncate(self, length: int) -> None:
        """Forget positions from `length` on."""
        if length > self.length:
            raise ValueError(f"{length} is beyond the length {self.length}")
        self.length = length

    def clone(self) -> ReferenceCache:
        """A copy."""
        twin = ReferenceCache(*self.keys.shape[:2], self.keys.shape[3], self.type)
        twin.keys, twin.values, twin.length = self.keys.copy(), self.values.copy(), self.length
        return twin

    def store(self, layer: int, position: int, key: F32, value: F32) -> None:
        """Rows [kv_heads, head_dim] of one position, rounded to the storage type."""
        self.reserve(position + 1)
        self.keys[layer, :, position] = _sound_keys(self._rounded(key))
        self.values[layer, :, position] = self._rounded(value)
        self.length = max(self.length, position + 1)

    def _rounded(self, x: F32) -> F32:
        if self.type == "f16":
            return x.astype(np.float16).astype(np.float32)
        return bf16_to_f32(f32_to_bf16(x)) if self.type == "bf16" else x


def _sound_keys(keys: F32) -> F32:
    """Infinite keys as NaN: a score of -infinity would get no weight and hide them."""
    return np.where(np.isfinite(keys), keys, np.float32(np.nan))


class _Run:
    """The memory of one run: reads operands and writes results as plain 2-D arrays."""

    def __init__(
        self,
        plan: Plan,
        counts: Mapping[str, int],
        caches: Sequence[KvCacheLike],
        activation_bits: ActivationBits,
    ) -> None:
        self.plan = plan
        self.activation_bits = activation_bits
        self.caches = cast("Sequence[ReferenceCache]", caches)
        types = {"f32": np.float32, "i32": np.int32}
        self.memory = [
            np.zeros(counts[b.dim] * b.row_elements, types[b.element]) for b in plan.buffers
        ]

    def read(self, view: View) -> Array:
        rows = self.memory[view.buffer.index].reshape(-1, view.stride)
        array = rows[:, view.start : view.start + view.width]
        return array[:, 0] if view.buffer.element == "i32" else array

    def write(self, view: View, result: NDArray[np.generic]) -> None:
        rows = self.memory[view.buffer.index].reshape(-1, view.stride)
        rows[:, view.start : view.start + view.width] = result.reshape(rows.shape[0], view.width)


class ReferenceExecutor:
    """Runs a plan in NumPy. Same interface and results, within rounding, as the native one."""

    def __init__(self, plan: Plan, activation_bits: ActivationBits = 13) -> None:
        self.plan = plan
        self.activation_bits: ActivationBits = activation_bits

    def run(
        self, inputs: Mapping[str, Array], caches: Sequence[KvCacheLike] = ()
    ) -> dict[str, Array]:
        """See `Executor.run`."""
        arrays, counts = checked_inputs(self.plan, inputs)
        run = _Run(self.plan, counts, caches, self.activation_bits)
        for name, array in arrays.items():
            run.memory[self.plan.inputs[name].buffer.index][:] = array.reshape(-1)
        for op in self.plan.ops:
            operands = [run.read(view) for view in op.inputs]
            run.write(op.output, _FUNCTIONS[op.kind](run, op, *operands))
        return {name: run.read(view).copy() for name, view in self.plan.outputs.items()}

    def new_cache(self, layers: int, kv_heads: int, head_dim: int, type: str) -> KvCacheLike:
        """See `Executor.new_cache`."""
        return ReferenceCache(layers, kv_heads, head_dim, type)


# -- the ops -------------------------------------------------------------------------------------


def _embed(run: _Run, op: Op, ids: NDArray[np.int32]) -> F32:
    return run.plan.matrices[op.matrices[0]].to_f32()[ids]


def _set_rows(run: _Run, op: Op, x: F32, values: F32, index: NDArray[np.int32]) -> F32:
    result = x.copy()
    result[index] = values
    return result


def _take_rows(run: _Run, op: Op, x: F32, index: NDArray[np.int32]) -> F32:
    return x[index]


#: The largest activation beside q8 weights, by its bits. A block's sum of 32 products of at most
#: 128 * 4095 is a float without rounding; 255 is the largest magnitude that fits a byte.
Q8_PEAKS = {13: 4095, 9: 255}
#: The same beside q4 weights: these kernels multiply bytes.
Q4_PEAK = 127


def quantize_rows(x: F32, blocks: int, most: int) -> tuple[F32, F32]:
    """Rows [n, in] -> whole values [n, blocks, 32] up to `most` (as f32) and scales [n, blocks]."""
    padded = np.pad(x, [(0, 0), (0, blocks * BLOCK - x.shape[1])])
    slices: F32 = padded.reshape(x.shape[0], blocks, BLOCK)
    peak = np.abs(slices).max(axis=2)
    sound = peak > np.float32(1e-34)  # below, most / peak would overflow
    inverse = np.divide(np.float32(most), peak, out=np.zeros_like(peak), where=sound)
    return np.rint(slices * inverse[..., None]), peak / np.float32(most)


def _matmul(x: F32, matrix: PackedMatrix, activation_bits: ActivationBits) -> F64:
    """X @ matrix.T. With q8 and q4 weights the rows of x are quantised first, as in the core."""
    if matrix.format not in QUANTIZED:
        return x.astype(np.float64) @ matrix.to_f32().T.astype(np.float64)
    values, scales = matrix.quants()
    blocks, peak = scales.shape[1], Q8_PEAKS[activation_bits]
    xq, xs = quantize_rows(x, blocks, peak if matrix.format == "q8" else Q4_PEAK)
    sums = np.einsum("rbk,obk->rbo", xq, values.reshape(-1, blocks, BLOCK), optimize=True)
    result = np.einsum("rbo,rb,ob->ro", sums.astype(np.float64), xs, scales, optimize=True)
    return cast("F64", result[:, : matrix.out_features])


def _epilogue(run: _Run, op: Op, result: F64) -> F64:
    for vector in op.vectors:
        result = result + run.plan.vectors[vector]
    if op.ints[0] == 1:
        return _gelu_values(result)
    return _silu_values(result) if op.ints[0] == 2 else result


def _product(run: _Run, op: Op, x: F32) -> F64:
    return _matmul(x, run.plan.matrices[op.matrices[0]], run.activation_bits)


def _linear(run: _Run, op: Op, x: F32) -> F64:
    return _epilogue(run, op, _product(run, op, x))


def _conv2d(run: _Run, op: Op, x: F32) -> F64:
    _, height, width = op.ints
    channels = x.shape[1]
    images = x.reshape(-1, height, width, channels)
    images = np.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    patches = windows[:, ::2, ::2].transpose(0, 1, 2, 4, 5, 3).reshape(-1, 9 * channels)
    return _epilogue(run, op, _product(run, op, patches))


def _depthwise_conv(
    run: _Run, op: Op, x: F32, starts: NDArray[np.int32], ends: NDArray[np.int32]
) -> F64:
    weight, bias = (run.plan.vectors[i].astype(np.float64) for i in op.vectors)
    taps = weight.reshape(-1, x.shape[1])
    result = np.zeros(x.shape, np.float64) + bias
    for r in range(x.shape[0]):
        for tap, row in enumerate(range(r - len(taps) // 2, r + len(taps) // 2 + 1)):
            if starts[r] <= row < ends[r]:
                result[r] += taps[tap] * x[row]
    return result


def _rms_norm(run: _Run, op: Op, x: F32) -> F64:
    slices = x.astype(np.float64).reshape(x.shape[0], op.ints[0], x.shape[1] // op.ints[0])
    scale = 1 / np.sqrt((slices**2).mean(axis=2, keepdims=True) + op.floats[0])
    return cast("F64", (slices * scale * run.plan.vectors[op.vectors[0]]).reshape(x.shape))


def _adaptive_rms_norm(run: _Run, op: Op, x: F32, scales: F32, index: NDArray[np.int32]) -> F64:
    wide = x.astype(np.float64)
    root = np.sqrt((wide**2).mean(axis=1, keepdims=True) + op.floats[0])
    return cast("F64", wide / root * scales[index])


def _layer_norm(run: _Run, op: Op, x: F32) -> F64:
    weight, bias = (run.plan.vectors[i] for i in op.vectors)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    variance = (centred**2).mean(axis=1, keepdims=True)
    return cast("F64", centred / np.sqrt(variance + op.floats[0]) * weight + bias)


def _rope_angles(run: _Run, op: Op, positions: NDArray[np.int32]) -> F64:
    inv_freq = run.plan.vectors[op.vectors[0]]
    angles = (positions[:, None].astype(np.float32) * inv_freq).astype(np.float64)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)


def _rope(run: _Run, op: Op, x: F32, angles: F32) -> F32:
    head_dim = angles.shape[1]
    cos, sin = np.split(angles[:, None], 2, axis=2)
    heads = x.reshape(x.shape[0], x.shape[1] // head_dim, head_dim)
    first, second = np.split(heads, 2, axis=2)
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return np.concatenate(rotated, axis=2).reshape(x.shape)


def _softmax_attention(q: F32, keys: F32, values: F32) -> F64:
    """Q [heads, d] against keys and values [kv_heads, n, d] -> [heads, d]."""
    repeat = q.shape[0] // keys.shape[0]
    k = keys.repeat(repeat, axis=0).astype(np.float64)
    scores = np.einsum("hd,hnd->hn", q, k) / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return cast("F64", np.einsum("hn,hnd->hd", weights, values.repeat(repeat, axis=0)))


def _cached_attention(
    run: _Run,
    op: Op,
    q: F32,
    k: F32,
    v: F32,
    sequences: NDArray[np.int32],
    positions: NDArray[np.int32],
) -> F64:
    layer, heads, kv_heads, head_dim = op.ints
    result = np.zeros(q.shape, np.float64)
    for r, (sequence, position) in enumerate(zip(sequences, positions, strict=True)):
        if not 0 <= sequence < len(run.caches):
            raise IndexError(f"row {r}: no sequence {sequence}")
        cache = run.caches[sequence]
        if position < 0 or position > cache.length:
            raise IndexError(f"row {r}: position {position} lies beyond what its cache holds")
        rows = (x[r].reshape(kv_heads, head_dim) for x in (k, v))
        cache.store(layer, position, *rows)
        visible = slice(0, position + 1)
        attended = _softmax_attention(
            q[r].reshape(heads, head_dim),
            cache.keys[layer, :, visible],
            cache.values[layer, :, visible],
        )
        result[r] = attended.reshape(-1)
    return result


def _window_attention(
    run: _Run,
    op: Op,
    q: F32,
    k: F32,
    v: F32,
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
) -> F64:
    heads, head_dim = op.ints
    operands = (q, _sound_keys(k), v)
    by_head = [x.reshape(-1, heads, head_dim).transpose(1, 0, 2) for x in operands]
    result = np.zeros(q.shape, np.float64)
    for r in range(q.shape[0]):
        window = slice(starts[r], ends[r])
        keys, values = by_head[1][:, window], by_head[2][:, window]
        result[r] = _softmax_attention(by_head[0][:, r], keys, values).reshape(-1)
    return result


def _silu_gate(run: _Run, op: Op, gate: F32, up: F32) -> F64:
    return _silu_values(gate.astype(np.float64)) * up


def _silu_values(x: F64) -> F64:
    return cast("F64", x / (1 + np.exp(-x)))


_ERF = np.frompyfunc(math.erf, 1, 1)


def _erf(x: F64) -> F64:
    return np.asarray(_ERF(x), np.float64)


def _gelu_values(x: F64) -> F64:
    return x / 2 * (1 + _erf(x / np.sqrt(2)))


def _gelu(run: _Run, op: Op, x: F32) -> F64:
    return _gelu_values(x.astype(np.float64))


def _add(run: _Run, op: Op, a: F32, b: F32) -> F32:
    return a + b


def _add_periodic(run: _Run, op: Op, x: F32) -> F32:
    table = run.plan.vectors[op.vectors[0]].reshape(-1, x.shape[1])
    return x + table[np.arange(x.shape[0]) % table.shape[0]]


def _keep_columns(run: _Run, op: Op, x: F32, rows: Indices, starts: Indices, ends: Indices) -> F32:
    result = x.copy()
    for row in set(rows.tolist()):
        ruled_out = ~np.isnan(x[row])
        for start, end in zip(starts[rows == row], ends[rows == row], strict=True):
            ruled_out[start:end] = False
        result[row, ruled_out] = -np.inf
    return result


def _argmax(run: _Run, op: Op, x: F32) -> NDArray[np.int32]:
    return np.where(np.isnan(x).any(axis=1), -1, x.argmax(axis=1)).astype(np.int32)


_FUNCTIONS: dict[str, Callable[..., NDArray[np.generic]]] = {
    name: globals()[f"_{name}"] for name in OPS
}
