"""Memory for packed matrices: aligned, zeroed, never shared."""

from __future__ import annotations

import numpy as np

from stapes.weights import arena
from stapes.weights.arena import Arena


def test_pieces_are_zeroed_aligned_and_apart(monkeypatch):
    monkeypatch.setattr(arena, "_ARENA_BYTES", 4096)
    memory = Arena()
    pieces = [memory.take(size) for size in (1, 63, 64, 65, 4096, 3000, 2000, 10_000)]
    for number, piece in enumerate(pieces, start=1):
        assert piece.ctypes.data % 64 == 0
        assert not piece.any()
        piece[:] = number
    for number, piece in enumerate(pieces, start=1):
        assert (piece == number).all()


def test_a_piece_outlives_its_arena():
    piece = Arena().take(100)
    piece[:] = 7
    assert np.array_equal(piece, np.full(100, 7, np.uint8))
