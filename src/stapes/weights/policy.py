"""Which matrices keep more bits than the format that was asked for: one rule, for every model."""

from __future__ import annotations

from collections.abc import Sequence

#: In q4 the projections to queries, keys and values are q8: 3% more bytes of a 0.5B model, and what
#: rounding the weights adds to its perplexity falls to a sixth (docs/fidelity.md).
KEPT_AT_Q8 = ("q_proj", "k_proj", "v_proj", "qkv_proj")


def matrix_format(names: Sequence[str], format: str) -> str:
    """What tensors that are stacked into one matrix are packed as where `format` is asked for."""
    kept = all(name.split(".")[-2:-1] in [[part] for part in KEPT_AT_Q8] for name in names)
    return "q8" if format == "q4" and kept else format
