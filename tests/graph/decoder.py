"""A small random decoder as a plan: every op that a real one uses, at awkward sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from graph.cases import FACTORS
from stapes import _native
from stapes.graph import GraphBuilder, KvCacheLike, NativeExecutor, Plan, View
from stapes.weights import PackedMatrix, pack_reference

F32 = NDArray[np.float32]

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCAB, LAYERS = 40, 4, 2, 20, 56, 100, 2
Q, KV = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM


class _Weights:
    def __init__(self, format: str) -> None:
        self.rng = np.random.default_rng(7)
        self.format = format

    def matrix(self, out: int, in_: int) -> PackedMatrix:
        dense = self.rng.normal(0, 1.6 / in_**0.5, (out, in_)).astype(np.float32)
        return pack_reference(dense, self.format)

    def vector(self, size: int, mean: float = 1) -> F32:
        return self.rng.normal(mean, 0.2, size).astype(np.float32)


def _layer(g: GraphBuilder, w: _Weights, x: View, angles: View, where: list[View], i: int) -> View:
    h = g.rms_norm(x, w.vector(HIDDEN), 1e-6)
    qkv = g.linear(h, w.matrix(Q + 2 * KV, HIDDEN), bias=w.vector(Q + 2 * KV, mean=0))
    q, k, v = qkv.split(Q, KV, KV)
    q = g.rope(g.rms_norm(q, w.vector(HEAD_DIM), 1e-6, groups=HEADS), angles)
    k = g.rope(g.rms_norm(k, w.vector(HEAD_DIM), 1e-6, groups=KV_HEADS), angles)
    sizes = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM}
    attended = g.cached_attention(q, k, v, *where, layer=i, **sizes)
    x = g.add(x, g.linear(attended, w.matrix(HIDDEN, Q)))
    h = g.rms_norm(x, w.vector(HIDDEN), 1e-6)
    gate, up = g.linear(h, w.matrix(2 * MLP, HIDDEN)).split(MLP, MLP)
    return g.add(x, g.linear(g.silu_gate(gate, up), w.matrix(HIDDEN, MLP)))


@lru_cache(maxsize=8)
def decoder_plan(format: str) -> Plan:
    g, w = GraphBuilder("rows"), _Weights(format)
    ids, sequences, positions = (
        g.index_input(n, "rows") for n in ("ids", "sequences", "positions")
    )
    inv_freq = (10000.0 ** (-np.arange(HEAD_DIM // 2) * 2 / HEAD_DIM)).astype(np.float32)
    angles = g.rope_angles(positions, inv_freq)
    x = g.embed(ids, w.matrix(VOCAB, HIDDEN))
    for i in range(LAYERS):
        x = _layer(g, w, x, angles, [sequences, positions], i)
    logits = g.linear(g.rms_norm(x, w.vector(HIDDEN), 1e-6), w.matrix(VOCAB, HIDDEN))
    g.output("hidden", x)
    g.output("logits", logits)
    g.output("best", g.argmax(logits))
    return g.build()


@dataclass
class Decoder:
    """A decoder on one engine; rows in, everything that it computes out."""

    executor: NativeExecutor
    kv: str

    def new_cache(self) -> KvCacheLike:
        return self.executor.new_cache(LAYERS, KV_HEADS, HEAD_DIM, self.kv)

    def run(self, *parts: tuple[KvCacheLike, Sequence[int]]) -> F32:
        """All outputs [rows, ...] side by side, for rows that follow what each cache holds."""
        ids = np.concatenate([np.asarray(tokens, np.int32) for _, tokens in parts])
        sequences = np.repeat(np.arange(len(parts)), [len(tokens) for _, tokens in parts])
        starts = [np.arange(cache.length, cache.length + len(t)) for cache, t in parts]
        positions = np.concatenate(starts)
        inputs = {
            "ids": ids,
            "sequences": sequences.astype(np.int32),
            "positions": positions.astype(np.int32),
        }
        out = self.executor.run(inputs, [cache for cache, _ in parts])
        best = out["best"].astype(np.float32)[:, None]
        return np.concatenate([out["hidden"], out["logits"], best], axis=1)


def decoder(format: str, kv: str, instructions: str, threads: int = 2) -> Decoder:
    engine = _native.Engine(threads, instructions)
    stored, bits = FACTORS[format]
    return Decoder(NativeExecutor(decoder_plan(stored), engine, activation_bits=bits), kv)


def tokens(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, count).tolist()
