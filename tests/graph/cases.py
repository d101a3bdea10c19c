"""The table of op cases: for each op small plans over awkward shapes, and inputs for any rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from stapes import _native
from stapes.graph import Executor, GraphBuilder, KvCacheLike, NativeExecutor, Plan, View
from stapes.graph.builder import Activation
from stapes.options import ActivationBits
from stapes.weights import PackedMatrix, pack_reference

Array = NDArray[np.float32] | NDArray[np.int32]
Indices = Callable[[int, np.random.Generator], NDArray[np.int32]]

ROWS = (0, 1, 2, 5, 7, 8, 9, 31, 33, 193, 200)
FORMATS = ("f32", "bf16", "q8", "q4")
#: Formats to multiply by, with the bits of the activations beside them.
FACTORS: dict[str, tuple[str, ActivationBits]] = {
    **{format: (format, 13) for format in FORMATS},
    "q8-9bit": ("q8", 9),
}
#: No multiples of 8, 16 or 32, one less and one more than those, and plain ones.
WIDTHS = (1, 2, 7, 8, 9, 15, 31, 32, 33, 100, 257)


@dataclass(frozen=True)
class Case:
    """A plan with one op, whose output is named "y".

    Attributes:
        build: describes the plan; f32 inputs are filled with normal numbers.
        indices: what the i32 inputs hold, by name.
        rows: numbers of rows to run.
        cache: layers, kv_heads, head_dim, type.
        bits: of the activations beside q8 weights.
    """

    kind: str
    label: str
    dims: tuple[str, ...]
    build: Callable[[GraphBuilder], View]
    indices: dict[str, Indices]
    rows: tuple[int, ...] = ROWS
    cache: tuple[int, int, int, str] | None = None
    bits: ActivationBits = 13

    def __str__(self) -> str:
        return f"{self.kind}-{self.label}"

    def plan(self) -> Plan:
        g = GraphBuilder(*self.dims)
        g.output("y", self.build(g))
        return g.build()

    def native(self, threads: int, instructions: str) -> NativeExecutor:
        engine = _native.Engine(threads, instructions)
        return NativeExecutor(self.plan(), engine, activation_bits=self.bits)

    def inputs(self, rows: int, rng: np.random.Generator) -> dict[str, Array]:
        result: dict[str, Array] = {}
        for name, view in self.plan().inputs.items():
            count = rows if view.buffer.dim == "rows" else OTHER_ROWS
            if view.buffer.element == "i32":
                result[name] = self.indices[name](rows, rng)
            else:
                shape = (count * view.per_row, view.width)
                result[name] = rng.normal(size=shape).astype(np.float32)
        return result


#: Rows of a second dimension, "others", where an op has one.
OTHER_ROWS = 3


def run_case(
    executor: Executor, inputs: dict[str, Array], caches: tuple[KvCacheLike, ...] = ()
) -> Array:
    return executor.run(inputs, caches)["y"]


def normal(*shape: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def matrix(out: int, in_: int, format: str) -> PackedMatrix:
    return pack_reference(normal(out, in_, seed=out + in_) / np.float32(in_**0.5), format)


def operand(g: GraphBuilder, name: str, width: int, part: bool) -> View:
    """An input of the given width: whole, or columns out of a wider one."""
    if part:
        return g.input(name, "rows", width + 8).columns(3, width)
    return g.input(name, "rows", width)


def below(limit: int) -> Indices:
    return lambda rows, rng: rng.integers(0, limit, rows).astype(np.int32)


def _case(kind: str, label: str, build: Callable[[GraphBuilder], View], **more: object) -> Case:
    options: dict[str, object] = {"dims": ("rows",), "indices": {}} | more
    return Case(kind, label, build=build, **options)  # type: ignore[arg-type]


# -- tables and rows -------------------------------------------------------------------------------


def _embed(g: GraphBuilder, width: int, format: str) -> View:
    return g.embed(g.index_input("ids", "rows"), matrix(37, width, format))


def _embed_cases() -> Iterator[Case]:
    for format in FORMATS:
        for width in (1, 16, 33, 100):
            build = partial(_embed, width=width, format=format)
            yield _case("embed", f"{format}-{width}", build, indices={"ids": below(37)})


def _set_rows(g: GraphBuilder, width: int) -> View:
    x, values = g.input("x", "rows", width), g.input("values", "others", width + 1)
    return g.set_rows(x, values.columns(1, width), g.index_input("index", "others"))


def _take_rows(g: GraphBuilder, width: int) -> View:
    return g.take_rows(operand(g, "x", width, True), g.index_input("index", "others"))


def _picked(rows: int, rng: np.random.Generator) -> NDArray[np.int32]:
    return rng.integers(0, rows, OTHER_ROWS).astype(np.int32)


def _picked_once(rows: int, rng: np.random.Generator) -> NDArray[np.int32]:
    return rng.permutation(rows)[:OTHER_ROWS].astype(np.int32)


def _picking_cases() -> Iterator[Case]:
    two = {"dims": ("rows", "others"), "rows": (3, 7, 200)}
    for width in (1, 33):
        build = partial(_set_rows, width=width)
        yield _case("set_rows", f"{width}", build, indices={"index": _picked_once}, **two)
        build = partial(_take_rows, width=width)
        yield _case("take_rows", f"{width}", build, indices={"index": _picked}, **two)


def _keep_columns(g: GraphBuilder, width: int) -> View:
    names = ("rows", "starts", "ends")
    return g.keep_columns(
        operand(g, "x", width, True), *(g.index_input(name, "others") for name in names)
    )


def _keep_columns_cases() -> Iterator[Case]:
    """Of three ranges, two belong to one row, and one to another; all other rows stay whole."""
    for width in (4, 33, 1000):
        fixed = {
            "rows": lambda rows, rng: np.array([rows // 3, rows // 3, rows - 1], np.int32),
            "starts": lambda rows, rng: np.array([0, 2, 3], np.int32),
            "ends": partial(_range_ends, width),
        }
        more = {"dims": ("rows", "others"), "rows": (2, 7, 200), "indices": fixed}
        yield _case("keep_columns", f"{width}", partial(_keep_columns, width=width), **more)


def _range_ends(width: int, rows: int, rng: np.random.Generator) -> NDArray[np.int32]:
    return np.array([1, rng.integers(3, width, endpoint=True), width], np.int32)


# -- matrices --------------------------------------------------------------------------------------

#: in, out: tails of inputs and outputs, and inputs beyond the slices of 256 and 512.
LINEAR_SHAPES = (
    (1, 1),
    (7, 15),
    (8, 16),
    (31, 17),
    (32, 100),
    (33, 16),
    (96, 1),
    (513, 17),
    (700, 40),
)


#: More rows than pass through all tiles together, a whole number of times and not.
LONG_ROWS = (384, 385, 900)


def _linear(
    g: GraphBuilder,
    in_: int,
    out: int,
    format: str,
    epilogue: bool,
    part: bool,
    rows_of: bool,
    activation: Activation = "gelu",
) -> View:
    x = g.input("x", "rows", 3 * in_).rows_of(in_) if rows_of else operand(g, "x", in_, part)
    bias = normal(out, seed=5) if epilogue else None
    return g.linear(x, matrix(out, in_, format), bias, activation if epilogue else "none")


def _linear_cases() -> Iterator[Case]:
    for name, (format, bits) in FACTORS.items():
        for i, (in_, out) in enumerate(LINEAR_SHAPES):
            for epilogue in (False, True):
                plain = partial(_linear, in_=in_, out=out, format=format, epilogue=epilogue)
                build = partial(plain, part=i % 2 == epilogue, rows_of=False)
                label = f"{name}-{in_}x{out}{'-gelu' * epilogue}"
                yield _case("linear", label, build, bits=bits)
        tailed = partial(_linear, in_=20, out=17, format=format, epilogue=True)
        build = partial(tailed, part=False, rows_of=True)
        yield _case("linear", f"{name}-rows_of", build, bits=bits)
        silu = partial(tailed, rows_of=False, activation="silu")
        yield _case("linear", f"{name}-silu", partial(silu, part=False), bits=bits)
        build = partial(silu, part=True)
        yield _case("linear", f"{name}-long", build, rows=LONG_ROWS, bits=bits)


CONV_SHAPES = (
    (1, 1, 1, 1),
    (1, 2, 3, 15),
    (3, 2, 1, 16),
    (5, 7, 8, 17),
    (8, 3, 3, 100),
    (4, 6, 33, 16),
    (5, 6, 32, 24),  # whole blocks of channels: pixels are quantised once
    (7, 4, 64, 40),
)


def _conv2d(g: GraphBuilder, shape: tuple[int, int, int, int], format: str, gelu: bool) -> View:
    height, width, channels, out = shape
    image = g.input("x", "rows", height * width * channels).rows_of(channels)
    weights = matrix(out, 9 * channels, format)
    return g.conv2d(image, height, width, weights, normal(out), "gelu" if gelu else "none")


def _conv2d_cases() -> Iterator[Case]:
    for name, (format, bits) in FACTORS.items():
        for i, shape in enumerate(CONV_SHAPES):
            build = partial(_conv2d, shape=shape, format=format, gelu=bool(i % 2))
            label = f"{name}-{'x'.join(map(str, shape))}"
            yield _case("conv2d", label, build, rows=(0, 1, 2, 5, 33), bits=bits)


def _depthwise_conv(g: GraphBuilder, taps: int, width: int, part: bool) -> View:
    x = operand(g, "x", width, part)
    where = [g.index_input("starts", "rows"), g.index_input("ends", "rows")]
    return g.depthwise_conv(x, normal(taps, width), normal(width, seed=2), *where)


def _depthwise_conv_cases() -> Iterator[Case]:
    for taps in (1, 3, 7, 63):
        for width in (1, 8, 17, 40, 100):
            build = partial(_depthwise_conv, taps=taps, width=width, part=width % 8 == 0)
            indices = {"starts": _starts, "ends": _ends}
            yield _case("depthwise_conv", f"{taps}x{width}", build, indices=indices)


# -- one row at a time -----------------------------------------------------------------------------


def _rms_norm(g: GraphBuilder, width: int, groups: int, part: bool) -> View:
    x = operand(g, "x", width * groups, part)
    return g.rms_norm(x, normal(width, seed=2), 1e-6, groups=groups)


def _adaptive_rms_norm(g: GraphBuilder, width: int, part: bool) -> View:
    x = operand(g, "x", width, part)
    scales = g.input("scales", "others", width + 2).columns(2, width)
    return g.adaptive_rms_norm(x, scales, g.index_input("i", "rows"), 1e-6)


def _layer_norm(g: GraphBuilder, width: int, part: bool) -> View:
    x = operand(g, "x", width, part)
    return g.layer_norm(x, normal(width, seed=2), normal(width, seed=3), 1e-5)


def _silu_gate(g: GraphBuilder, width: int, part: bool) -> View:
    if part:
        gate, up = g.input("x", "rows", 2 * width).split(width, width)
        return g.silu_gate(gate, up)
    return g.silu_gate(g.input("gate", "rows", width), g.input("up", "rows", width))


def _gelu(g: GraphBuilder, width: int, part: bool) -> View:
    return g.gelu(operand(g, "x", width, part))


def _add(g: GraphBuilder, width: int, part: bool) -> View:
    return g.add(operand(g, "a", width, part), g.input("b", "rows", width))


def _add_periodic(g: GraphBuilder, width: int, part: bool) -> View:
    x = operand(g, "x", 3 * width, False).rows_of(width)
    return g.add_periodic(x, normal(3 if part else 1, width))


def _argmax(g: GraphBuilder, width: int, part: bool) -> View:
    return g.argmax(operand(g, "x", width, part))


def _row_cases() -> Iterator[Case]:
    for width in WIDTHS:
        for groups in (1, 3):
            build = partial(_rms_norm, width=width, groups=groups, part=width % 2 == 0)
            yield _case("rms_norm", f"{width}x{groups}", build)
        build = partial(_adaptive_rms_norm, width=width, part=width % 2 == 0)
        more = {"dims": ("rows", "others"), "indices": {"i": below(OTHER_ROWS)}}
        yield _case("adaptive_rms_norm", f"{width}", build, **more)
        for builder in (_layer_norm, _silu_gate, _gelu, _add, _add_periodic, _argmax):
            for part in (False, True):
                label = f"{width}{'-columns' * part}"
                yield _case(builder.__name__[1:], label, partial(builder, width=width, part=part))


# -- positions -------------------------------------------------------------------------------------

HEAD_DIMS = (2, 20, 32, 64, 80, 128)


def _inv_freq(head_dim: int) -> NDArray[np.float32]:
    return (1e6 ** (-np.arange(head_dim // 2) * 2 / head_dim)).astype(np.float32)


def _rope_angles(g: GraphBuilder, head_dim: int) -> View:
    return g.rope_angles(g.index_input("positions", "rows"), _inv_freq(head_dim))


def _rope(g: GraphBuilder, head_dim: int, heads: int) -> View:
    x = operand(g, "x", heads * head_dim, heads == 3)
    return g.rope(x, operand(g, "angles", head_dim, heads == 1))


def _rope_cases() -> Iterator[Case]:
    for head_dim in HEAD_DIMS:
        build = partial(_rope_angles, head_dim=head_dim)
        positions = {"positions": below(40000)}
        yield _case("rope_angles", f"{head_dim}", build, indices=positions)
        for heads in (1, 3):
            yield _case(
                "rope", f"{head_dim}x{heads}", partial(_rope, head_dim=head_dim, heads=heads)
            )


# -- attention -------------------------------------------------------------------------------------

#: heads, kv_heads: plain, grouped, one for all; more query heads than fit one pass over the keys.
HEADS = ((3, 3), (4, 2), (6, 1), (50, 1))
WINDOWS = (13, 1, 104, 47, 300, 16, 255)


def _cached_attention(g: GraphBuilder, heads: int, kv_heads: int, head_dim: int) -> View:
    widths = (heads * head_dim, kv_heads * head_dim, kv_heads * head_dim)
    q, k, v = g.input("qkv", "rows", sum(widths)).split(*widths)
    where = [g.index_input("sequences", "rows"), g.index_input("positions", "rows")]
    return g.cached_attention(
        q, k, v, *where, layer=1, heads=heads, kv_heads=kv_heads, head_dim=head_dim
    )


def _first_sequence(rows: int, rng: np.random.Generator) -> NDArray[np.int32]:
    return np.zeros(rows, np.int32)


def _from_start(rows: int, rng: np.random.Generator) -> NDArray[np.int32]:
    return np.arange(rows, dtype=np.int32)


def _cached_attention_cases() -> Iterator[Case]:
    indices = {"sequences": _first_sequence, "positions": _from_start}
    for i, head_dim in enumerate(HEAD_DIMS):
        for j, (heads, kv_heads) in enumerate(HEADS):
            if heads == 50 and head_dim > 32:
                continue
            build = partial(_cached_attention, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
            kv = ("f16", "f32", "bf16")[(i + j) % 3]
            # 700 rows from the start: they see 1 .. 700 keys, over the edges at 256 and 512
            rows = (0, 1, 2, 9, 33, 700) if heads < 50 else (1, 7, 33)
            yield _case(
                "cached_attention",
                f"{heads}/{kv_heads}x{head_dim}-{kv}",
                build,
                indices=indices,
                rows=rows,
                cache=(2, kv_heads, head_dim, kv),
            )


def _windows(rows: int) -> list[tuple[int, int]]:
    """Neighbouring windows of WINDOWS' sizes that cover the rows."""
    result, start = [], 0
    for size in WINDOWS * 3:
        if start < rows:
            result.append((start, min(rows, start + size)))
        start += size
    return result


def _starts(rows: int, rng: np.random.Generator) -> NDArray[np.int32]:
    return np.array([start for start, end in _windows(rows) for _ in range(end - start)], np.int32)


def _ends(rows: int, rng: np.random.Generator) -> NDArray[np.int32]:
    return np.array([end for start, end in _windows(rows) for _ in range(end - start)], np.int32)


def _window_attention(g: GraphBuilder, heads: int, head_dim: int) -> View:
    width = heads * head_dim
    q, k, v = g.input("qkv", "rows", 3 * width).split(width, width, width)
    where = [g.index_input("starts", "rows"), g.index_input("ends", "rows")]
    return g.window_attention(q, k, v, *where, heads=heads, head_dim=head_dim)


def _window_attention_cases() -> Iterator[Case]:
    for head_dim in HEAD_DIMS:
        for heads in (1, 3):
            build = partial(_window_attention, heads=heads, head_dim=head_dim)
            yield _case(
                "window_attention",
                f"{heads}x{head_dim}",
                build,
                indices={"starts": _starts, "ends": _ends},
                rows=(0, 1, 9, 33, 200, 600),
            )


CASES: tuple[Case, ...] = (
    *_embed_cases(),
    *_picking_cases(),
    *_keep_columns_cases(),
    *_linear_cases(),
    *_conv2d_cases(),
    *_depthwise_conv_cases(),
    *_row_cases(),
    *_rope_cases(),
    *_cached_attention_cases(),
    *_window_attention_cases(),
)

_NOT_BY_ROW = {
    *("keep_columns", "set_rows", "take_rows"),
    *("cached_attention", "window_attention", "depthwise_conv"),
}

#: Cases whose rows must not depend on one another at all; a few shapes of each kind suffice.
ROW_CASES: tuple[Case, ...] = tuple(
    case
    for i, case in enumerate(CASES)
    if case.kind not in _NOT_BY_ROW and (case.kind in ("linear", "embed") or i % 3 == 0)
)
