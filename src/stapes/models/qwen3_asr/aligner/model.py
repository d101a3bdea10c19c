"""Qwen3-ForcedAligner: a recording and its text in, the time of each word out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE, Audio, log_mel
from stapes.audio.normalise import normalise
from stapes.audio.stream import open_stream
from stapes.decoder import expected_tensors as decoder_tensors
from stapes.decoder.prompt import CheckedPrompt, check_prompt
from stapes.errors import CapacityError, NumericError, RequestError
from stapes.graph import NoTracer
from stapes.models.description import Description, Part
from stapes.models.qwen3_asr.aligner.config import LANGUAGES, AlignerConfig, read_config
from stapes.models.qwen3_asr.aligner.prompt import AlignerPrompts
from stapes.models.qwen3_asr.aligner.repair import in_order
from stapes.models.qwen3_asr.config import CHUNK_FRAMES
from stapes.models.qwen3_asr.encoder import F32, audio_tokens
from stapes.models.qwen3_asr.encoder_weights import expected_tensors as encoder_tensors
from stapes.models.qwen3_asr.networks import Networks, expected_tensors, networks_from
from stapes.models.source import ModelSource
from stapes.models.transcript import Segment, Timings, TokenCounts, Transcript, Word
from stapes.options import RuntimeOptions
from stapes.text.languages import canonical_language
from stapes.text.tokenizer import Tokenizer
from stapes.text.words import alignable_words

if TYPE_CHECKING:
    from stapes.models.interface import AudioSource

MOST_SECONDS = 300.0  # what the model was trained for; its classes of time reach to 400 s


class ForcedAligner:
    """A loaded aligner. May be used from several threads; they take turns in the core.

    Attributes:
        name: the name or path it was loaded by.
        load_s: seconds that loading took.
        languages: English names of those that it was trained on.
    """

    def __init__(
        self,
        name: str,
        config: AlignerConfig,
        tokenizer: Tokenizer,
        networks: Networks,
        load_s: float,
    ) -> None:
        self.name = name
        self.load_s = load_s
        self.languages = LANGUAGES
        self.config = config
        self.encoder = networks.encoder
        self.decoder = networks.decoder
        self.prompts = AlignerPrompts(tokenizer, config)

    def align(
        self,
        source: AudioSource,
        text: str,
        *,
        sample_rate: int | None = None,
        language: str | None = None,
    ) -> tuple[Word, ...]:
        """When each word of a recording is spoken.

        Args:
            source: a path, the bytes of a file, an open binary file, or samples; up to 300 s.
            text: what is said in it, all of it.
            sample_rate: of samples, in Hz; must be given with an array and only then.
            language: name or ISO 639 code of the text's, to be refused when the model was not
                trained on it; None takes the text as it is.

        Returns:
            The words in order, each with its punctuation: joined they are the text, white space
            aside. Times never decrease and lie within the recording. () when there are no words.

        Raises:
            RequestError: an argument is wrong, or the language is none of `languages`.
            AudioError: the recording cannot be used.
            CapacityError: it is longer than 300 s, or text and audio exceed the model's positions
                or the memory.
            NumericError: the model computed a value that is not finite.
        """
        found = self.transcript(source, text, sample_rate=sample_rate, language=language)
        return found.segments[0].words if found.segments else ()

    def align_samples(
        self,
        samples: F32,
        text: str,
        *,
        start_s: float = 0.0,
        language: str | None = None,
    ) -> tuple[Word, ...]:
        """The same for a piece of a recording that has been decoded.

        Args:
            samples: f32 [n], n > 0, mono, 16 kHz, within [-1, 1]; up to 300 s.
            text: what is said in the piece.
            start_s: where the piece begins; times are those of the whole recording.
            language: see `align`.

        Raises:
            RequestError, CapacityError, NumericError: see `align`.
        """
        self._check_language(language)
        words = self._aligned(samples, text, samples.size / SAMPLE_RATE).words
        return tuple(Word(w.text, start_s + w.start_s, start_s + w.end_s) for w in words)

    def transcript(
        self,
        source: AudioSource,
        text: str,
        *,
        sample_rate: int | None = None,
        language: str | None = None,
    ) -> Transcript:
        """The text as a transcript of one segment with words, as `stapes.output` writes them.

        Arguments and errors are those of `align`. Without words there is no segment.
        """
        started = time.perf_counter()
        name = self._check_language(language)  # before a recording is decoded for nothing
        audio = read_short(source, sample_rate)
        read = time.perf_counter()
        self.decoder.tracer.stage("audio", started, read)
        found = self._aligned(audio.samples, text, audio.duration_s)
        total_s = time.perf_counter() - started
        return Transcript(
            text=text.strip(),
            language=name,
            duration_s=audio.duration_s,
            model=self.name,
            finish_reason="stop",
            truncated=False,
            warnings=audio.warnings,
            token_ids=(),
            tokens=found.tokens,
            timings_s=Timings(self.load_s, read - started, *found.timings_s, 0.0, total_s),
            segments=_segments(text.strip(), name, found.words),
        )

    def classes(self, prompt: CheckedPrompt, marks: NDArray[np.int32]) -> NDArray[np.int32]:
        """The class of time that the model gives to each mark: [marks] i32. One forward pass.

        Args:
            prompt: as `AlignerPrompts` builds it, checked.
            marks: [marks] i32, ascending rows of the prompt.

        Raises:
            CapacityError: the cache does not fit into memory.
            NumericError: logits that are not finite.
        """
        session = self.decoder.new_session()
        classes = cast("NDArray[np.int32]", session.prefill(prompt, marks))
        bad = np.flatnonzero(classes < 0)
        if bad.size:
            raise NumericError(
                f"The logits of {bad.size} of {marks.size} times hold a NaN, first those of time "
                f"{bad[0]}: the model's numbers overflowed."
            )
        return classes

    def _check_language(self, language: str | None) -> str | None:
        """The language's name; RequestError for one that the model was not trained on."""
        name = None if language is None else canonical_language(language)
        if name not in (None, *self.languages):
            raise RequestError(
                f"The aligner was not trained on {name}, only on {', '.join(self.languages)}."
            )
        return name

    def _aligned(self, samples: F32, text: str, duration_s: float) -> _Aligned:
        words = alignable_words(text)
        if not words:
            return _Aligned((), TokenCounts(0, 0, 0), (0.0, 0.0, 0.0))
        check_length(duration_s)
        spelled = [word.spelled for word in words]
        clock = [time.perf_counter()]
        mel = log_mel(samples, self.config.encoder.num_mel_bins)
        clock.append(time.perf_counter())
        embeddings = self._encode(mel, spelled)
        clock.append(time.perf_counter())
        prompt, marks = self._prompt(embeddings, spelled)
        classes = self.classes(prompt, marks)
        clock.append(time.perf_counter())
        for stage, (began, ended) in zip(
            ("mel", "encode", "prefill"), pairwise(clock), strict=True
        ):
            self.decoder.tracer.stage(stage, began, ended)
        mel_s, encode_s, prefill_s = np.diff(clock).tolist()
        times = in_order((classes * (self.config.segment_ms / 1000)).tolist())
        inside = [min(seconds, duration_s) for seconds in times]
        return _Aligned(
            tuple(map(Word, [word.shown for word in words], inside[::2], inside[1::2])),
            TokenCounts(prompt=len(prompt), audio=len(embeddings), new=0),
            (mel_s, encode_s, prefill_s),
        )

    def _encode(self, mel: F32, spelled: Sequence[str]) -> F32:
        """The audio's rows; a prompt that is too long is refused before they are computed."""
        rows = self.encoder.tokens(mel.shape[0])
        self._prompt(np.zeros((rows, self.decoder.spec.hidden_size), np.float32), spelled)
        return self.encoder.encode(mel)

    def _prompt(
        self, embeddings: F32, spelled: Sequence[str]
    ) -> tuple[CheckedPrompt, NDArray[np.int32]]:
        built = self.prompts.build(embeddings, spelled)
        return check_prompt(built.prompt, 1, self.decoder.spec), built.marks


@dataclass(frozen=True)
class _Aligned:
    """The words of a piece, in its own time; tokens; seconds of mel, encoder and decoder."""

    words: tuple[Word, ...]
    tokens: TokenCounts
    timings_s: tuple[float, float, float]


def _segments(text: str, language: str | None, words: tuple[Word, ...]) -> tuple[Segment, ...]:
    if not words:
        return ()
    return (Segment(words[0].start_s, words[-1].end_s, text, language, words=words),)


def check_length(duration_s: float) -> None:
    """CapacityError for a recording that is too long."""
    if duration_s > MOST_SECONDS:
        raise CapacityError(
            f"The recording lasts {duration_s:.1f} s or more, but the aligner takes at most "
            f"{MOST_SECONDS:.0f} s: give it parts, each with its text."
        )


def read_short(source: AudioSource, sample_rate: int | None) -> Audio:
    """Decode a recording, but not more of it than the aligner takes.

    Raises:
        RequestError, AudioError: see `stapes.audio`.
        CapacityError: it is too long.
    """
    with open_stream(source, sample_rate) as stream:
        blocks: list[F32] = []
        for block in stream:
            if stream.duration_s > MOST_SECONDS:
                check_length(max(stream.duration_s, stream.expected_s or 0.0))
            blocks.append(block)
        samples = normalise(np.concatenate(blocks), stream.name)
        return Audio(samples, stream.duration_s, stream.warnings)


def load_source(
    source: ModelSource, name: str, options: RuntimeOptions, tracer: NoTracer, started: float
) -> ForcedAligner:
    """Load a checkpoint in either layout, or a converted one.

    `started` is the time, by `time.perf_counter`, from which loading is counted.

    Raises:
        ModelError: a file is missing, damaged, or says what is not supported.
    """
    tokenizer = source.tokenizer()
    config = read_config(source.files)
    with source.readers(expected_tensors(config), config.decoder, options) as readers:
        networks = networks_from(config, readers, options, tracer)
    loaded = time.perf_counter()
    tracer.stage("load", started, loaded)
    return ForcedAligner(name, config, tokenizer, networks, loaded - started)


def describe(source: ModelSource) -> Description:
    """See `models.description.Description`."""
    config = read_config(source.files)
    encoder = encoder_tensors(config.encoder, config.encoder_names)
    sizes = {**config.decoder.sizes(), "logits_size": config.decoder.head_size}
    parts = {
        "encoder": Part(vars(config.encoder), encoder),
        "decoder": Part(sizes, decoder_tensors(config.decoder)),
    }
    # A chunk is a second.
    per_minute = audio_tokens(60 * CHUNK_FRAMES)
    return Description("qwen3_forced_aligner", parts, config.decoder, per_minute)
