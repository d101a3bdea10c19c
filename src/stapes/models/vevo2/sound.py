"""What Vevo2 gives back: samples, and how they came about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stapes.decoder import FinishReason
from stapes.models.vevo2.voice import SAMPLE_RATE

F32 = NDArray[np.float32]


@dataclass
class VoiceTimings:
    """Seconds spent in each stage.

    Attributes:
        load: of the parts that are loaded, whenever that was.
        reference: codes, pitch and mel of the recordings, as far as they were not known.
        codes: the autoregressive stage.
        mel: flow matching.
        samples: the vocoder.
        total: wall time from the request to its sound.
    """

    load: float = 0.0
    reference: float = 0.0
    codes: float = 0.0
    mel: float = 0.0
    samples: float = 0.0
    total: float = 0.0


@dataclass(frozen=True, eq=False)
class VoicePiece:
    """The sound of one piece of a request; all pieces behind one another are the whole.

    Attributes:
        samples: f32 [n], 24 kHz; the pause behind it belongs to it.
        text: the piece of the text; "" of tasks that take none.
        codes: i32 [m], content-style codes that the sound was made from.
        finish_reason: "length" where the text may not be finished.
        index, count: which piece of how many.
        warnings: sentences about what may be wrong with it.
    """

    samples: F32
    text: str
    codes: NDArray[np.int32]
    finish_reason: FinishReason
    index: int
    count: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class VoiceAudio:
    """A sound and how it came about.

    Attributes:
        samples: f32 [n], mono, mostly within [-1, 1].
        codes: i32 [m], content-style codes of all pieces.
        seed: with which the same request gives the same samples.
        task: which it was.
        pieces: how many pieces of text, or of the source, it was made in.
        pitch_steps: semitones by which the prosody, or the source, was shifted.
        finish_reason: "length" where a piece of text may not be finished.
        warnings: sentences about what may be wrong with it.
        timings_s: seconds of each stage.
        sample_rate: Hz.
    """

    samples: F32
    codes: NDArray[np.int32]
    seed: int
    task: str
    pieces: int
    pitch_steps: int
    finish_reason: FinishReason
    warnings: tuple[str, ...]
    timings_s: VoiceTimings = field(repr=False)
    sample_rate: int = SAMPLE_RATE

    @property
    def duration_s(self) -> float:
        """Seconds."""
        return self.samples.size / self.sample_rate


@dataclass(frozen=True)
class VoiceProgress:
    """How far a request has come.

    Attributes:
        piece, pieces: which piece is worked on, from 0, and how many there are.
        stage: "codes" while they are written, "mel" during the steps of flow matching.
        done, total: codes so far and at most, or steps.
    """

    piece: int
    pieces: int
    stage: Literal["codes", "mel"]
    done: int
    total: int

    @property
    def share(self) -> float:
        """Of the steps of flow matching of all pieces, from 0 to 1."""
        steps = self.done / self.total if self.stage == "mel" else 0.0
        return (self.piece + steps) / self.pieces


OnProgress = Callable[[VoiceProgress], None]
ShouldCancel = Callable[[], bool]
