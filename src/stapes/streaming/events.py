"""What a stream says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from stapes.models.transcript import FinishReason, Word

EventType: TypeAlias = Literal["partial", "committed", "final", "notice"]


@dataclass(frozen=True)
class StreamEvent:
    """One thing that a stream says.

    For each utterance the texts of its "committed" events join to the text of its "final" one; each
    of them ends with a whole word and a whole character. The finals together are the transcript.

    Attributes:
        type: "partial" (text that may still change), "committed" (text that will not), "final" (an
            utterance is over), "notice" (a sentence for the user: text that was not believed, steps
            that are left out, a stall).
        text: partial: what is heard of the utterance behind its committed text; "" takes back what
            the partial before said. committed: what comes behind the committed text so far, with
            its leading space. final: the whole utterance. notice: the sentence.
        start_s, end_s: seconds of the stream. final: the utterance's. partial: from where the
            committed text ends to the end of the audio that was heard. committed: the text was
            spoken between the two.
        language: Hugging Face's English name, None while none is known.
        lag_s: seconds from the feeding of the audio at end_s to this event.
        utterance: counts utterances from 0; the finals of those without text are left out. -1 for
            notices that concern none.
        step_s: seconds of audio from the last look at the utterance to this one.
        finish_reason: of a final, as for `Segment`.
        words: of a final, with times, when there is an aligner.
        token_ids: of a final: the ids of its answer, control ids included.
    """

    type: EventType
    text: str
    start_s: float
    end_s: float
    language: str | None = None
    lag_s: float = field(default=0.0, compare=False)
    utterance: int = 0
    step_s: float = field(default=0.0, compare=False)
    finish_reason: FinishReason = "stop"
    words: tuple[Word, ...] = ()
    token_ids: tuple[int, ...] = ()
