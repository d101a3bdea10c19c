"""The parts of a published folder, each loaded when it is first needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar, cast

from stapes.errors import CapacityError, ConfigError
from stapes.graph import NO_TRACE, Engine, NoTracer
from stapes.models.vevo2.acoustic.config import MelSpec, mel_spec
from stapes.models.vevo2.acoustic.flow_matching import FlowMatching
from stapes.models.vevo2.acoustic.load import WEIGHTS as ACOUSTIC_WEIGHTS
from stapes.models.vevo2.acoustic.load import load_flow_matching, load_vocoder
from stapes.models.vevo2.acoustic.vocoder import Vocoder
from stapes.models.vevo2.autoregressive.decoder import Vevo2Decoder
from stapes.models.vevo2.autoregressive.load import load_vevo2
from stapes.models.vevo2.layout import Vevo2Layout
from stapes.models.vevo2.published import whisper_of
from stapes.models.vevo2.tasks import Task
from stapes.models.vevo2.tokenizers.load import TokenizerLoader
from stapes.models.vevo2.tokenizers.tokenizer import (
    ContentStyleTokenizer,
    ProsodyTokenizer,
    WhisperFeatures,
)
from stapes.models.vevo2.voice import HOP, SAMPLE_RATE
from stapes.options import RuntimeOptions, WeightFormat
from stapes.system import default_threads

T = TypeVar("T")

TOKENIZER_WEIGHTS: WeightFormat = "f32"
"""Codes are a nearest-neighbour choice: with fewer bits some are others than the publisher's."""


@dataclass(frozen=True)
class PartFormats:
    """Formats of the matrices of each part.

    Attributes:
        decoder: options of the autoregressive stage; its matrices are bf16 when they say nothing.
        tokenizers: of both tokenizers and Whisper.
        acoustic: of flow matching and vocoder.
    """

    decoder: RuntimeOptions = field(default_factory=RuntimeOptions)
    tokenizers: WeightFormat = TOKENIZER_WEIGHTS
    acoustic: WeightFormat = ACOUSTIC_WEIGHTS


class Parts:
    """The parts, loaded on demand, from any thread.

    Args:
        layout: where they lie.
        formats: of their matrices.
        whisper: the folder or .pt file of Whisper medium; None looks for it in the layout.
        tracer: records the runs.

    Attributes:
        load_s: seconds that each loaded part took, without others that it needed, by its name.
    """

    def __init__(
        self,
        layout: Vevo2Layout,
        formats: PartFormats,
        whisper: Path | None = None,
        tracer: NoTracer = NO_TRACE,
    ) -> None:
        self.layout = layout
        self.formats = formats
        self.load_s: dict[str, float] = {}
        self._whisper, self._tracer = whisper, tracer
        self._engine = Engine(formats.decoder.threads or default_threads())
        self._tokenizers = TokenizerLoader(self._engine, formats.tokenizers, tracer)
        self._loaded: dict[str, Any] = {}
        self._lock = RLock()  # content_style loads whisper

    @property
    def ar(self) -> Vevo2Decoder:
        """The autoregressive stage."""
        return self._part("ar", self._load_ar)

    @property
    def whisper(self) -> WhisperFeatures:
        """Whisper's encoder."""
        return self._part("whisper", self._load_whisper)

    @property
    def content_style(self) -> ContentStyleTokenizer:
        """The content-style tokenizer."""
        return self._part("content_style_tokenizer", self._load_content_style)

    @property
    def prosody(self) -> ProsodyTokenizer:
        """The prosody tokenizer."""
        name = "prosody_tokenizer"
        return self._part(name, lambda: self._tokenizers.prosody(self.layout.folder(name)))

    @property
    def flow_matching(self) -> FlowMatching:
        """Flow matching."""
        return self._part("flow_matching", lambda: self._acoustic(load_flow_matching))

    @property
    def vocoder(self) -> Vocoder:
        """The vocoder."""
        return self._part("vocoder", lambda: self._acoustic(load_vocoder))

    @property
    def mel(self) -> MelSpec:
        """How a mel is made of samples; ConfigError unless frames are those of the tokenizers."""
        return self._part("mel", self._load_mel)

    def prepare(self, task: Task) -> None:
        """Load what a task needs and is not loaded yet.

        Raises:
            ModelError: files are missing, damaged or of another model.
            CapacityError: they do not fit into memory.
        """
        _ = self.mel, self.content_style, self.flow_matching, self.vocoder
        if task.autoregressive:
            _ = self.ar
        if task.prosody is not None:
            _ = self.prosody

    def _part(self, name: str, load: Callable[[], T]) -> T:
        with self._lock:
            if name not in self._loaded:
                started, before = time.perf_counter(), sum(self.load_s.values())
                try:
                    self._loaded[name] = load()
                except MemoryError:
                    raise CapacityError(
                        f"The {name.replace('_', ' ')} in {self.layout.root} does not fit into "
                        f"memory beside {len(self._loaded)} parts that are loaded."
                    ) from None
                within = sum(self.load_s.values()) - before
                self.load_s[name] = time.perf_counter() - started - within
            return cast("T", self._loaded[name])

    def _load_ar(self) -> Vevo2Decoder:
        return load_vevo2(self.layout.ar, self.formats.decoder, self._tracer)

    def _load_whisper(self) -> WhisperFeatures:
        path = self._whisper or whisper_of(self.layout)
        return self._tokenizers.whisper(path, self.layout.whisper_stats())

    def _load_content_style(self) -> ContentStyleTokenizer:
        folder = self.layout.folder("content_style_tokenizer")
        return self._tokenizers.content_style(folder, self.whisper)

    def _acoustic(self, load: Callable[..., T]) -> T:
        part = "flow_matching" if load is load_flow_matching else "vocoder"
        folder, config = self.layout.folder(part), self.layout.config(part)
        return load(folder, config, self._engine, self.formats.acoustic, self._tracer)

    def _load_mel(self) -> MelSpec:
        spec = mel_spec(self.layout.config("flow_matching"))
        if (spec.sample_rate, spec.hop_size) != (SAMPLE_RATE, HOP):
            raise ConfigError(
                f"The mel in {self.layout.folder('flow_matching')} has {spec.sample_rate} Hz and a "
                f"hop of {spec.hop_size}; supported are {SAMPLE_RATE} Hz and {HOP}."
            )
        return spec
