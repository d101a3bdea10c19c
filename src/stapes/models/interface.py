"""What a model is to those who use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias

if TYPE_CHECKING:
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

    from stapes.models.transcript import Transcript

    AudioSource: TypeAlias = str | PathLike[str] | bytes | BinaryIO | NDArray[np.generic]

Progress: TypeAlias = Callable[[float, float], None]


class SpeechModel(Protocol):
    """A loaded model that turns recordings into text."""

    @property
    def name(self) -> str:
        """The name or path it was loaded by."""
        ...

    @property
    def load_s(self) -> float:
        """Seconds that loading took."""
        ...

    def transcribe(
        self,
        source: AudioSource,
        *,
        sample_rate: int | None = None,
        language: str | None = None,
        context: str = "",
        max_new_tokens: int | None = None,
        loop_detection: bool = True,
        on_progress: Progress | None = None,
    ) -> Transcript:
        """Transcribe one recording.

        Args:
            source: a path, the bytes of a file, an open binary file, or samples
                (one channel, or one column per channel).
            sample_rate: of samples, in Hz; must be given with an array and only then.
            language: name or ISO 639 code that forces the language; None detects it.
            context: names and words to expect; never read as control tokens.
            max_new_tokens: cap for each piece of at most 30 s; None derives it from its length.
            loop_detection: end a piece whose tokens repeat without end.
            on_progress: called with the seconds of audio done and in all.
        """
        ...
