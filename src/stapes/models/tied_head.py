"""Checkpoints that say their head is the embedding, and carry one all the same."""

from __future__ import annotations

import numpy as np

from stapes.decoder import DecoderSpec
from stapes.errors import CheckpointError
from stapes.tensors import TensorStore

_COMPARED_ROWS = 64  # of a head with its embedding: reading all would touch a sixth of the file


def check_tied_head(store: TensorStore, spec: DecoderSpec) -> None:
    """Refuse a head of its own beside the word that it is tied; some rows tell the two apart.

    Raises CheckpointError, naming both tensors.
    """
    names = spec.names
    if not spec.tie_word_embeddings or names.lm_head not in store:
        return
    head, embedding = store[names.lm_head].raw(), store[names.token_embedding].raw()
    step = max(1, embedding.shape[0] // _COMPARED_ROWS)
    if head.shape != embedding.shape or not np.array_equal(head[::step], embedding[::step]):
        raise CheckpointError(
            f"config.json says that the head is tied, but {names.lm_head} differs from "
            f"{names.token_embedding}."
        )
