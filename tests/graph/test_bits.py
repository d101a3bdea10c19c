"""Rows are independent, bit for bit: how they are put together never shows in a result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.cases import CASES, ROW_CASES, Case, normal, run_case
from graph.decoder import HIDDEN, VOCAB, Decoder, decoder, tokens
from stapes import _native
from stapes.graph import KvCacheLike, NativeExecutor

SETS = _native.instruction_sets()
FORMATS = ["f32", "bf16", "q8", "q4", "q8-9bit"]
#: Every format of weights and of the cache at least once, without the whole product.
STORAGE = [
    *(("f32", "f32"), ("bf16", "bf16"), ("q8", "f16")),
    *(("f32", "f16"), ("q8", "bf16"), ("q4", "f16"), ("q8-9bit", "f16")),
]

FUSED = [name for name in SETS if name != "portable"]
#: Linear layers without an activation, whose exp is the instruction set's own.
PRODUCTS = [
    case for case in CASES if case.kind == "linear" and str(case).partition("x")[2].isdecimal()
]

each_set = pytest.mark.parametrize("instructions", SETS)
each_storage = pytest.mark.parametrize(("format", "kv"), STORAGE)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


# -- ops -------------------------------------------------------------------------------------------


@each_set
@pytest.mark.parametrize("case", ROW_CASES, ids=str)
def test_rows_alone_are_rows_together(case: Case, instructions: str) -> None:
    executor = case.native(2, instructions)
    inputs = case.inputs(200, np.random.default_rng(0))
    whole = run_case(executor, inputs)
    for block in (1, 2, 4, 5, 8, 9, 64):
        starts = range(0, 200, block) if block > 2 else range(0, 40, block)
        for start in starts:
            stop = min(start + block, 200)
            part = run_case(executor, cut(executor, inputs, start, stop))
            rows = len(whole) // 200
            assert same_bits(part, whole[start * rows : stop * rows]), (block, start)


def cut(
    executor: NativeExecutor, inputs: dict[str, np.ndarray], start: int, stop: int
) -> dict[str, np.ndarray]:
    views = executor.plan.inputs
    rows = {n: view.per_row for n, view in views.items() if view.buffer.dim == "rows"}
    return inputs | {n: inputs[n][start * k : stop * k] for n, k in rows.items()}


@each_set
@pytest.mark.parametrize("case", ROW_CASES, ids=str)
def test_any_number_of_threads_gives_the_same_bits(case: Case, instructions: str) -> None:
    inputs = case.inputs(200, np.random.default_rng(0))
    results = [run_case(case.native(threads, instructions), inputs) for threads in (1, 2, 3, 7)]
    assert all(same_bits(results[0], other) for other in results[1:])


@each_set
@pytest.mark.parametrize("format", FORMATS)
def test_very_many_rows_are_their_blocks(format: str, instructions: str) -> None:
    """Beyond 384 rows a linear layer takes its rows in parts, all tiles for each."""
    case = next(case for case in CASES if str(case) == f"linear-{format}-long")
    inputs = case.inputs(900, np.random.default_rng(0))
    executor = case.native(3, instructions)
    whole = run_case(executor, inputs)
    for block in (1, 100, 383, 385):
        parts = [
            run_case(executor, cut(executor, inputs, start, min(start + block, 900)))
            for start in range(0, 900 if block > 1 else 60, block)
        ]
        together = np.concatenate(parts)
        assert same_bits(together, whole[: len(together)]), block


@pytest.mark.parametrize("case", PRODUCTS, ids=str)
@pytest.mark.skipif(len(FUSED) < 2, reason="there is nothing to compare")
def test_instruction_sets_with_fma_give_the_same_bits(case: Case) -> None:
    """Whether they multiply pairs of int16, or bytes and their signs."""
    inputs = case.inputs(33, np.random.default_rng(0))
    first, *others = [run_case(case.native(2, name), inputs) for name in FUSED]
    assert all(same_bits(first, other) for other in others)


@each_set
@pytest.mark.parametrize("taps", [3, 7, 63])
def test_a_convolution_by_blocks_with_margins_is_the_whole(taps: int, instructions: str) -> None:
    """Inside a window a row depends on the rows that the taps reach, and on no other."""
    case = next(case for case in CASES if str(case) == f"depthwise_conv-{taps}x17")
    x, n, margin = normal(300, 17), 300, taps // 2
    executors = [case.native(t, instructions) for t in (1, 2, 3)]

    def convolve(executor: NativeExecutor, first: int, last: int) -> np.ndarray:
        rows = np.zeros(last - first, np.int32)
        inputs = {"x": x[first:last], "starts": rows, "ends": rows + len(rows)}
        return run_case(executor, inputs)

    whole = convolve(executors[0], 0, n)
    assert all(same_bits(whole, convolve(executor, 0, n)) for executor in executors[1:])
    for block in (1, 10, 130):
        for start in range(0, n, block):
            stop = min(start + block, n)
            first, last = max(start - margin, 0), min(stop + margin, n)
            part = convolve(executors[1], first, last)[start - first : stop - first]
            assert same_bits(part, whole[start:stop]), (block, start)


# -- the decoder -----------------------------------------------------------------------------------


def in_blocks(net: Decoder, ids: list[int], blocks: list[int]) -> np.ndarray:
    """The rows of `ids`, run in blocks of the given sizes (the last one takes the rest)."""
    cache, parts, start = net.new_cache(), [], 0
    for size in [*blocks, len(ids)]:
        if ids[start : start + size]:
            parts.append(net.run((cache, ids[start : start + size])))
        start += size
    return np.concatenate(parts)


@each_set
@each_storage
def test_prefill_is_single_steps(format: str, kv: str, instructions: str) -> None:
    net, ids = decoder(format, kv, instructions), tokens(40)
    whole = in_blocks(net, ids, [])
    assert len(set(whole[:, -1])) > 10  # the answer varies, or equality would prove little
    assert same_bits(whole, in_blocks(net, ids, [1] * 40))


@each_set
@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=12)
@given(data=st.data())
def test_any_split_into_blocks_is_the_whole(
    format: str, instructions: str, data: st.DataObject
) -> None:
    kv = data.draw(st.sampled_from(["f16", "f32", "bf16"]))
    count = data.draw(st.integers(1, 70))
    blocks = data.draw(st.lists(st.integers(1, 30), max_size=8))
    net, ids = decoder(format, kv, instructions), tokens(count, seed=count)
    assert same_bits(in_blocks(net, ids, []), in_blocks(net, ids, blocks))


@each_set
@pytest.mark.parametrize("kv", ["f16", "f32", "bf16"])
def test_splits_across_key_blocks_and_pages_are_the_whole(kv: str, instructions: str) -> None:
    net, ids = decoder("q8", kv, instructions), tokens(530)
    whole = in_blocks(net, ids, [])
    assert same_bits(whole, in_blocks(net, ids, [255, 1, 1, 3, 250, 1, 1, 1, 8]))
    assert same_bits(whole, in_blocks(net, ids, [64] * 8))


@each_set
@each_storage
def test_batched_sequences_are_each_alone(format: str, kv: str, instructions: str) -> None:
    net = decoder(format, kv, instructions)
    prompts = [tokens(n, seed=n) for n in (1, 3, 9, 20)]
    alone = [in_blocks(net, prompt, []) for prompt in prompts]
    caches = [net.new_cache() for _ in prompts]
    together = net.run(*zip(caches, prompts, strict=True))
    assert same_bits(together, np.concatenate(alone))


@each_set
@each_storage
def test_batched_steps_are_each_alone(format: str, kv: str, instructions: str) -> None:
    """Sequences of different lengths, one row each: the shape of batched decoding."""
    net = decoder(format, kv, instructions)
    prompts = [tokens(n, seed=n) for n in (2, 300, 17)]
    caches = [net.new_cache() for _ in prompts]
    for cache, prompt in zip(caches, prompts, strict=True):
        net.run((cache, prompt))
    together = net.run(*((cache, [5]) for cache in caches))
    alone = [in_blocks(net, [*prompt, 5], [])[-1:] for prompt in prompts]
    assert same_bits(together, np.concatenate(alone))


@each_set
@pytest.mark.parametrize("format", FORMATS)
def test_threads_give_the_same_decoder(format: str, instructions: str) -> None:
    ids = tokens(80)
    one = in_blocks(decoder(format, "f16", instructions, threads=1), ids, [60, 1, 1])
    for threads in (2, 3, 7):
        net = decoder(format, "f16", instructions, threads)
        assert same_bits(one, in_blocks(net, ids, [60, 1, 1]))


@each_set
@pytest.mark.parametrize("kv", ["f16", "f32", "bf16"])
def test_threads_that_share_key_blocks_give_the_same_decoder(kv: str, instructions: str) -> None:
    """Few rows over many blocks of keys: with 3 or 7 threads, 2 KV heads are split by positions."""
    ids, blocks = tokens(600), [250, 1, 1, 1, 1, 1, 1, 250, 4, 1, 1]
    one = in_blocks(decoder("q8", kv, instructions, threads=1), ids, blocks)
    for threads in (2, 3, 7):
        net = decoder("q8", kv, instructions, threads)
        assert same_bits(one, in_blocks(net, ids, blocks))


# -- what a cache holds beyond its length ----------------------------------------------------------


@each_set
@each_storage
def test_rewriting_after_truncate_is_a_cold_start(format: str, kv: str, instructions: str) -> None:
    net, cache = decoder(format, kv, instructions), None
    shared, old, new = tokens(30, 1), tokens(40, 2), tokens(11, 3)
    cache = net.new_cache()
    net.run((cache, shared + old))
    cache.truncate(30)
    assert same_bits(net.run((cache, new)), in_blocks(net, shared + new, [])[30:])


@each_set
@pytest.mark.parametrize("kv", ["f16", "f32", "bf16"])
@pytest.mark.parametrize("kept", [0, 1, 16, 21, 255, 256, 300])
def test_nan_in_truncated_slots_never_leaks(kept: int, kv: str, instructions: str) -> None:
    net = decoder("f32", kv, instructions)
    cache, ids = net.new_cache(), tokens(400)
    net.run((cache, ids[:kept])) if kept else None
    poison(net, cache, 400 - kept)
    cache.truncate(kept)
    for block in (1, 2, 20):
        clean = in_blocks(net, ids[: kept + block], [])[kept:]
        assert np.isfinite(clean).all()
        assert same_bits(net.run((cache, ids[kept : kept + block])), clean)
        cache.truncate(kept)
        poison(net, cache, 100)
        cache.truncate(kept)


def poison(net: Decoder, cache: KvCacheLike, rows: int) -> None:
    """NaN keys and values in the cache's next positions, written by a plan of the same shape."""
    from graph.decoder import HEAD_DIM, HEADS, KV, KV_HEADS, LAYERS, Q
    from stapes.graph import GraphBuilder

    g = GraphBuilder("rows")
    q, k, v = g.input("q", "rows", Q), g.input("k", "rows", KV), g.input("v", "rows", KV)
    where = [g.index_input("sequences", "rows"), g.index_input("positions", "rows")]
    sizes = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM}
    for layer in range(LAYERS):
        g.output(f"y{layer}", g.cached_attention(q, k, v, *where, layer=layer, **sizes))
    nan = np.full((rows, Q), np.nan, np.float32)
    inputs = {
        "q": nan,
        "k": nan[:, :KV],
        "v": nan[:, :KV],
        "sequences": np.zeros(rows, np.int32),
        "positions": np.arange(cache.length, cache.length + rows, dtype=np.int32),
    }
    NativeExecutor(g.build(), _native.Engine(1)).run(inputs, [cache])


@each_set
@each_storage
@pytest.mark.parametrize("kept", [20, 510])
def test_writing_to_a_clone_or_its_origin_changes_only_that_one(
    kept: int, format: str, kv: str, instructions: str
) -> None:
    net = decoder(format, kv, instructions)
    shared, one, two = tokens(kept, 1), tokens(5, 2), tokens(7, 3)
    origin = net.new_cache()
    net.run((origin, shared))
    twin = origin.clone()
    assert twin.length == origin.length == kept
    first, second = net.run((origin, one)), net.run((twin, two))
    assert same_bits(first, in_blocks(net, shared + one, [])[kept:])
    assert same_bits(second, in_blocks(net, shared + two, [])[kept:])
    assert same_bits(net.run((origin, two)), in_blocks(net, shared + one + two, [])[kept + 5 :])
    assert same_bits(net.run((twin, one)), in_blocks(net, shared + two + one, [])[kept + 7 :])


@each_set
def test_clones_of_clones_and_dropped_origins(instructions: str) -> None:
    net = decoder("q8", "f16", instructions)
    origin, shared = net.new_cache(), tokens(20)
    net.run((origin, shared))
    twins = [origin.clone(), origin.clone().clone()]
    del origin
    together = net.run(*((twin, tokens(3, seed)) for seed, twin in enumerate(twins)))
    alone = [in_blocks(net, shared + tokens(3, seed), [])[20:] for seed in range(2)]
    assert same_bits(together, np.concatenate(alone))


def test_the_decoder_of_these_tests_reads_its_input() -> None:
    net = decoder("f32", "f32", SETS[0])
    a, b = in_blocks(net, tokens(30, 1), []), in_blocks(net, tokens(30, 2), [])
    assert a.shape == (30, HIDDEN + VOCAB + 1)
    assert (a[:, -1] != b[:, -1]).mean() > 0.5
