"""Qwen3-ASR: recordings in, text out."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stapes.decoder import Prompt
from stapes.decoder import expected_tensors as decoder_tensors
from stapes.decoder.prompt import check_prompt
from stapes.graph import NoTracer
from stapes.models.description import Description, Part
from stapes.models.qwen3_asr.config import CHUNK_FRAMES, Qwen3AsrConfig, read_config
from stapes.models.qwen3_asr.encoder import audio_tokens
from stapes.models.qwen3_asr.encoder_weights import expected_tensors as encoder_tensors
from stapes.models.qwen3_asr.networks import Networks, expected_tensors, networks_from
from stapes.models.qwen3_asr.pieces import (
    Piece,
    finish_reason,
    joined_text,
    piece_warnings,
    segments_of,
    spoken_language,
    token_counts,
)
from stapes.models.qwen3_asr.pipeline import Pipeline
from stapes.models.qwen3_asr.postprocess import Answer, is_within_context, parse_answer
from stapes.models.qwen3_asr.prompt import PromptBuilder, control_tokens
from stapes.models.qwen3_asr.word_times import check_aligner, no_words_warnings
from stapes.models.recording import Recording
from stapes.models.source import ModelSource
from stapes.models.transcript import Segment, Timings, Transcript
from stapes.options import RuntimeOptions, TranscribeOptions
from stapes.text.languages import canonical_language
from stapes.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from stapes.models.interface import Aligner, AudioSource, Progress

_LOUD_RMS = 0.02  # -34 dBFS: quieter recordings may well hold no speech


class Transcriber(ABC):
    """A loaded model that writes down recordings piece by piece.

    Subclasses say what a prompt is and what an answer means. May be used from several threads;
    they take turns in the core.
    """

    def __init__(
        self,
        name: str,
        config: Qwen3AsrConfig,
        tokenizer: Tokenizer,
        networks: Networks,
        load_s: float,
    ) -> None:
        self.name = name
        self.load_s = load_s
        self.config = config
        self.tokenizer = tokenizer
        self.encoder = networks.encoder
        self.decoder = networks.decoder

    @abstractmethod
    def build_prompt(
        self, embeddings: NDArray[np.float32], context: str, forced: str | None
    ) -> Prompt:
        """The prompt of one piece: embeddings [tokens, hidden] f32, context, forced language.

        Raises RequestError when the model cannot do what is asked.
        """

    @abstractmethod
    def read_answer(self, token_ids: Sequence[int], forced: str | None) -> Answer:
        """What the new ids of one piece say."""

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
        """Transcribe one recording; see `SpeechModel.transcribe`."""
        options = TranscribeOptions(
            language, context, max_new_tokens, loop_detection, batch, chunk_seconds, vad
        )
        forced = None if language is None else canonical_language(language)
        check_aligner(aligner)
        pipeline = Pipeline(self, options, forced, aligner=aligner)
        with Recording(source, sample_rate, options, self.decoder.tracer) as recording:
            pieces: list[Piece] = []
            for piece in pipeline.run(recording.pieces(), should_cancel):
                pieces.append(piece)
                if on_segment:
                    for segment in segments_of([piece]):
                        on_segment(segment)
                if on_progress:
                    on_progress(piece.end_s, max(piece.end_s, recording.expected_s))
            return self.transcript(recording, pieces, pipeline)

    def check_room(self, frames: int, context: str, forced: str | None, budget: int) -> None:
        """Refuse a prompt of so many mel frames that is too long, before its audio is encoded."""
        rows = self.encoder.tokens(frames)
        blank = np.zeros((rows, self.decoder.spec.hidden_size), np.float32)
        check_prompt(self.build_prompt(blank, context, forced), budget, self.decoder.spec)

    def transcript(
        self, recording: Recording, pieces: list[Piece], pipeline: Pipeline
    ) -> Transcript:
        """What the pieces of a recording, all that came out of its pipeline, add up to."""
        text, reason = joined_text(pieces), finish_reason(pieces)
        warnings = [*recording.warnings, *(w for piece in pieces for w in piece_warnings(piece))]
        warnings += no_words_warnings(pieces)
        if pipeline.cancelled:
            reason = "cancelled"
            warnings.append(f"Stopped before the end, with {len(pieces)} pieces transcribed.")
        elif not any(piece.dropped for piece in pieces):
            is_cut = reason == "length"
            warnings += _doubts(recording, text, pipeline.options.context, is_cut)
        return Transcript(
            text=text,
            language=pipeline.forced or spoken_language(pieces),
            duration_s=recording.duration_s,
            model=self.name,
            finish_reason=reason,
            truncated=any(piece.result.finish_reason == "length" for piece in pieces),
            warnings=tuple(warnings),
            token_ids=tuple(i for piece in pieces for i in piece.result.token_ids),
            tokens=token_counts(pieces),
            timings_s=Timings(
                load=self.load_s,
                audio=recording.audio_s,
                mel=sum(piece.mel_s for piece in pieces),
                encode=sum(piece.encode_s for piece in pieces),
                prefill=pipeline.prefill_s,
                decode=pipeline.decode_s,
                align=sum(piece.align_s for piece in pieces),
                total=recording.total_s,
            ),
            segments=segments_of(pieces),
        )


def _doubts(recording: Recording, text: str, context: str, is_cut: bool) -> list[str]:
    """Warnings about a text that should not be taken at face value."""
    if is_within_context(text, context):
        return ["The transcript holds nothing but words of the given context."]
    if not text and not is_cut and recording.rms > _LOUD_RMS:
        level = 20 * np.log10(recording.rms)
        return [f"No speech was found, though the recording is not silent ({level:.0f} dBFS)."]
    return []


class Qwen3Asr(Transcriber):
    """A loaded Qwen3-ASR model."""

    def __init__(
        self,
        name: str,
        config: Qwen3AsrConfig,
        tokenizer: Tokenizer,
        networks: Networks,
        load_s: float,
    ) -> None:
        super().__init__(name, config, tokenizer, networks, load_s)
        vocab_size = config.decoder.vocab_size
        control = control_tokens(tokenizer, config.audio_token_id, vocab_size)
        self.prompts = PromptBuilder(tokenizer, control)

    def build_prompt(
        self, embeddings: NDArray[np.float32], context: str, forced: str | None
    ) -> Prompt:
        """See `Transcriber`."""
        return self.prompts.build(embeddings, context, forced)

    def read_answer(self, token_ids: Sequence[int], forced: str | None) -> Answer:
        """See `Transcriber`."""
        return parse_answer(token_ids, self.tokenizer, self.prompts.control.asr_text, forced)


def load_source(
    source: ModelSource, name: str, options: RuntimeOptions, tracer: NoTracer, started: float
) -> Qwen3Asr:
    """Load a checkpoint in either layout, or a converted one.

    `started` is the time, by `time.perf_counter`, from which loading is counted.

    Raises:
        ModelError: a file is missing, damaged, or says what is not supported.
    """
    tokenizer = source.tokenizer()
    config = read_config(source.files, tokenizer)
    with source.readers(expected_tensors(config), config.decoder, options) as readers:
        networks = networks_from(config, readers, options, tracer)
    loaded = time.perf_counter()
    tracer.stage("load", started, loaded)
    return Qwen3Asr(name, config, tokenizer, networks, loaded - started)


def describe(source: ModelSource) -> Description:
    """See `models.description.Description`."""
    config = read_config(source.files, source.tokenizer())
    parts = {
        "encoder": Part(
            vars(config.encoder), encoder_tensors(config.encoder, config.encoder_names)
        ),
        "decoder": Part(config.decoder.sizes(), decoder_tensors(config.decoder)),
    }
    # A chunk is a second.
    return Description("qwen3_asr", parts, config.decoder, audio_tokens(60 * CHUNK_FRAMES))
