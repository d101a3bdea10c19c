"""What a stream asks of an aligner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from stapes.models.transcript import Word

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Aligner(Protocol):
    """Says when the words of a text were spoken."""

    def align_samples(
        self, samples: NDArray[np.float32], text: str, *, start_s: float, language: str | None
    ) -> Sequence[Word]:
        """The words of a text in order, with their times.

        Args:
            samples: f32 [n], mono, 16 kHz: what was spoken.
            text: what was said.
            start_s: where the samples begin, in the seconds of the times.
            language: Hugging Face's English name, None when it is unknown.
        """
        ...
