"""What a model is to those who use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias

if TYPE_CHECKING:
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

    from stapes.models.transcript import Segment, Transcript, Word

    AudioSource: TypeAlias = str | PathLike[str] | bytes | BinaryIO | NDArray[np.generic]

Progress: TypeAlias = Callable[[float, float], None]


class Aligner(Protocol):
    """A loaded model that says when the words of a text were spoken."""

    def align_samples(
        self, samples: NDArray[np.float32], text: str, *, start_s: float, language: str | None
    ) -> Sequence[Word]:
        """The words of a text in order, with their times.

        Args:
            samples: f32 [n], mono, 16 kHz: what was spoken.
            text: what was said in them.
            start_s: where the samples begin; is added to all times.
            language: Hugging Face's English name, None when it is unknown.
        """
        ...


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
        batch: int | None = None,
        chunk_seconds: float = 30.0,
        vad: bool = True,
        aligner: Aligner | None = None,
        on_progress: Progress | None = None,
        on_segment: Callable[[Segment], None] | None = None,
        should_cancel: Callable[[], bool] | None = None,
    ) -> Transcript:
        """Transcribe one recording of any length; memory does not grow with it.

        It is cut into pieces at silence, which are decoded side by side. A piece in which the model
        repeats itself without end, or gives back the context and nothing else, is tried once more
        in two halves, then left out with a warning.

        Args:
            source: a path, the bytes of a file, an open binary file, or samples
                (one channel, or one column per channel).
            sample_rate: of samples, in Hz; must be given with an array and only then.
            language: name or ISO 639 code that forces the language; None detects it.
            context: names and words to expect; never read as control tokens.
            max_new_tokens: cap for each piece; None derives it from the piece's length.
            loop_detection: end a piece whose tokens repeat without end.
            batch: pieces decoded side by side, which changes the speed and never the text; None
                chooses up to 16 by the free memory.
            chunk_seconds: longest piece, 1 to 300 s; accuracy suffers beyond 30.
            vad: leave out what a speech detector takes for silence, music or noise; False gives
                everything to the model.
            aligner: of `stapes.load_aligner`; times each word. In a language that it was not
                trained on there are no word times, but a warning.
            on_progress: called with the seconds of audio done and in all, as far as that is known.
            on_segment: called with each segment once it and all before it are done.
            should_cancel: asked between runs of the decoder; True ends the transcription with what
                is done, and finish_reason "cancelled".

        Raises:
            RequestError: an argument is wrong.
            AudioError: the recording cannot be used.
            CapacityError: context, piece and budget exceed the model's positions or the memory.
            NumericError: the model computed a value that is not finite.
        """
        ...
