"""A stream of a loaded model."""

from __future__ import annotations

from stapes.audio.recording import SAMPLE_RATE
from stapes.audio.speech import speech_detector
from stapes.decoder import Batch
from stapes.errors import RequestError
from stapes.models.interface import Aligner, SpeechModel
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.models.qwen3_asr.word_times import check_aligner
from stapes.options import TranscribeOptions
from stapes.streaming.hypothesis import Asked
from stapes.streaming.policy import StreamPolicy
from stapes.streaming.stream import Stream
from stapes.text.languages import canonical_language


def make_stream(
    model: SpeechModel,
    *,
    policy: StreamPolicy | None = None,
    language: str | None = None,
    context: str = "",
    sample_rate: int = SAMPLE_RATE,
    vad: bool = True,
    aligner: Aligner | None = None,
    reuse: bool = True,
    batch: Batch | None = None,
) -> Stream:
    """See `stapes.stream`; `batch` is that of `Stream`."""
    transcriber = streaming_model(model)
    TranscribeOptions(language=language, context=context)  # checks both
    check_aligner(aligner)
    forced = None if language is None else canonical_language(language)
    asked = Asked(policy or StreamPolicy(), forced, context)
    detector, note = speech_detector() if vad else (None, None)
    return Stream(
        transcriber,
        asked,
        sample_rate=sample_rate,
        detector=detector,
        note=note,
        aligner=aligner,
        reuse=reuse,
        batch=batch,
    )


def streaming_model(model: SpeechModel) -> Qwen3Asr:
    """The model, when it can stream.

    Raises:
        RequestError: it cannot: its encoder's rows depend on the whole recording.
    """
    if not isinstance(model, Qwen3Asr):
        name = getattr(model, "name", type(model).__name__)
        raise RequestError(
            f"{name} cannot transcribe live: only models whose audio encoder works in windows, "
            "which are those of Qwen3-ASR, can."
        )
    return model
