"""When the words of a transcribed piece are spoken, as a forced aligner tells."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stapes.errors import CapacityError, NumericError, RequestError
from stapes.models.qwen3_asr.pieces import Piece

if TYPE_CHECKING:
    from stapes.models.interface import Aligner


def check_aligner(aligner: object) -> None:
    """RequestError unless it is None or can align."""
    if aligner is not None and not hasattr(aligner, "align_samples"):
        kind = type(aligner).__name__
        raise RequestError(f"aligner must be a model of load_aligner, not {kind}.")


def with_words(piece: Piece, samples: NDArray[np.float32], aligner: Aligner) -> Piece:
    """The piece with its words; one that cannot be aligned keeps its text and says why.

    Args:
        piece: of the recording.
        samples: f32 [n], mono, 16 kHz: all of the piece.
        aligner: that times the words.
    """
    if not piece.answer.text:
        return piece
    began = time.perf_counter()
    try:
        words = aligner.align_samples(
            samples, piece.answer.text, start_s=piece.start_s, language=piece.answer.language
        )
    except (RequestError, CapacityError, NumericError) as error:
        return replace(piece, no_words=str(error))
    return replace(piece, words=tuple(words), align_s=time.perf_counter() - began)


def no_words_warnings(pieces: Sequence[Piece]) -> list[str]:
    """One sentence for each reason for which pieces have no word times."""
    reasons = Counter(piece.no_words for piece in pieces if piece.no_words)
    return [
        f"{count} of {len(pieces)} pieces have no word times: {reason}"
        for reason, count in reasons.items()
    ]
