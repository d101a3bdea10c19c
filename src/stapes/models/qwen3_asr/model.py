"""Qwen3-ASR: recordings in, text out."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE, Audio, Span, log_mel, split_at_quiet
from stapes.decoder import GenerateOptions, Prompt, generate
from stapes.decoder import expected_tensors as decoder_tensors
from stapes.decoder.prompt import check_prompt
from stapes.graph import NoTracer
from stapes.models.audio_source import open_audio
from stapes.models.description import Description, Part
from stapes.models.qwen3_asr.config import CHUNK_FRAMES, Qwen3AsrConfig, read_config
from stapes.models.qwen3_asr.encoder import audio_tokens
from stapes.models.qwen3_asr.encoder_weights import expected_tensors as encoder_tensors
from stapes.models.qwen3_asr.networks import Networks, expected_tensors, networks_from
from stapes.models.qwen3_asr.pieces import (
    MAX_PIECE_S,
    Piece,
    finish_reason,
    joined_text,
    piece_warnings,
    spoken_language,
    token_budget,
    token_counts,
)
from stapes.models.qwen3_asr.postprocess import Answer, is_within_context, parse_answer
from stapes.models.qwen3_asr.prompt import PromptBuilder, control_tokens
from stapes.models.source import ModelSource
from stapes.models.transcript import Timings, Transcript
from stapes.options import RuntimeOptions, TranscribeOptions
from stapes.text.languages import canonical_language
from stapes.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from stapes.models.interface import AudioSource, Progress

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
        on_progress: Progress | None = None,
    ) -> Transcript:
        """Transcribe one recording; see `SpeechModel.transcribe`."""
        options = TranscribeOptions(language, context, max_new_tokens, loop_detection)
        forced = None if language is None else canonical_language(language)
        started = time.perf_counter()
        audio = open_audio(source, sample_rate)
        audio_s = time.perf_counter() - started
        self.decoder.tracer.stage("audio", started, started + audio_s)
        pieces: list[Piece] = []
        spans = split_at_quiet(audio.samples, MAX_PIECE_S)
        for span in spans:
            pieces.append(self.transcribe_piece(audio.samples, span, options, forced))
            if on_progress:
                on_progress(span.end / SAMPLE_RATE, audio.samples.size / SAMPLE_RATE)
        return self._transcript(audio, pieces, options, forced, audio_s, started)

    def transcribe_piece(
        self,
        samples: NDArray[np.float32],
        span: Span,
        options: TranscribeOptions,
        forced: str | None,
    ) -> Piece:
        """Transcribe one span of a recording, independently of all others."""
        clock = time.perf_counter
        started = clock()
        mel = log_mel(samples[span.start : span.end], self.config.encoder.num_mel_bins)
        mel_done = clock()
        budget = options.max_new_tokens or token_budget((span.end - span.start) / SAMPLE_RATE)
        self._check_room(self.encoder.tokens(mel.shape[0]), options.context, forced, budget)
        embeddings = self.encoder.encode(mel)
        encoded = clock()
        self.decoder.tracer.stage("mel", started, mel_done)
        self.decoder.tracer.stage("encode", mel_done, encoded)
        prompt = self.build_prompt(embeddings, options.context, forced)
        generate_options = GenerateOptions(budget, options.loop_detection)
        result = generate(self.decoder.new_session(), prompt, generate_options)
        return Piece(
            start_s=span.start / SAMPLE_RATE,
            end_s=span.end / SAMPLE_RATE,
            answer=self.read_answer(result.token_ids[: result.kept], forced),
            result=result,
            audio_tokens=embeddings.shape[0],
            mel_s=mel_done - started,
            encode_s=encoded - mel_done,
        )

    def _check_room(self, rows: int, context: str, forced: str | None, budget: int) -> None:
        """Refuse a prompt that is too long before its audio is encoded."""
        blank = np.zeros((rows, self.decoder.spec.hidden_size), np.float32)
        check_prompt(self.build_prompt(blank, context, forced), budget, self.decoder.spec)

    def _transcript(
        self,
        audio: Audio,
        pieces: list[Piece],
        options: TranscribeOptions,
        forced: str | None,
        audio_s: float,
        started: float,
    ) -> Transcript:
        text = joined_text(pieces)
        warnings = [*audio.warnings, *(w for piece in pieces for w in piece_warnings(piece))]
        warnings += _doubts(audio, text, options.context)
        return Transcript(
            text=text,
            language=forced or spoken_language(pieces),
            duration_s=audio.duration_s,
            model=self.name,
            finish_reason=finish_reason(pieces),
            truncated=any(piece.result.finish_reason == "length" for piece in pieces),
            warnings=tuple(warnings),
            token_ids=tuple(i for piece in pieces for i in piece.result.token_ids),
            tokens=token_counts(pieces),
            timings_s=Timings(
                load=self.load_s,
                audio=audio_s,
                mel=sum(piece.mel_s for piece in pieces),
                encode=sum(piece.encode_s for piece in pieces),
                prefill=sum(piece.result.prefill_s for piece in pieces),
                decode=sum(piece.result.decode_s for piece in pieces),
                total=time.perf_counter() - started,
            ),
        )


def _doubts(audio: Audio, text: str, context: str) -> list[str]:
    """Warnings about a text that should not be taken at face value."""
    if is_within_context(text, context):
        return ["The transcript holds nothing but words of the given context."]
    rms = float(np.sqrt(np.mean(np.square(audio.samples)))) if audio.samples.size else 0.0
    if not text and rms > _LOUD_RMS:
        level = 20 * np.log10(rms)
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
