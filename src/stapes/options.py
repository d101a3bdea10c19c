"""Options of the runtime: frozen, validated once, passed whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from stapes.errors import RequestError

WeightFormat = Literal["f32", "bf16", "q8", "q4"]
KvFormat = Literal["f16", "f32", "bf16"]
ActivationBits = Literal[13, 9]

WEIGHT_FORMATS: tuple[str, ...] = get_args(WeightFormat)
KV_FORMATS: tuple[str, ...] = get_args(KvFormat)
ACTIVATION_BITS: tuple[int, ...] = get_args(ActivationBits)

MAX_THREADS = 1024
"""The core's own limit (native/runtime/engine.cpp)."""


def _require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise RequestError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def _require_positive(name: str, value: int | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(f"{name} must be a positive whole number, not {value!r}.")


def _require_unicode(name: str, value: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{name} is not valid Unicode at character {error.start}: {error.reason}."
        ) from None


@dataclass(frozen=True)
class RuntimeOptions:
    """How a model is held and run.

    Attributes:
        weights: format of the matrices in memory (norms and biases are always f32); None takes
            what a converted file holds, and q8 where a checkpoint is packed.
        kv: storage format of the KV cache.
        threads: worker threads, 1 to 1024; None takes what the affinity mask and the CPU quota
            allow.
        encoder_weights: format of an audio encoder's matrices; None takes that of the others, but
            no fewer bits than q8, below which such encoders are known to drift.
        activation_bits: to which activations are rounded beside q8 weights, 13 or 9; None takes
            what the model is known to bear: 9 for speech recognition, 13 for the rest. 9 are
            faster where the processor multiplies bytes (AVX-512).
    """

    weights: WeightFormat | None = None
    kv: KvFormat = "f16"
    threads: int | None = None
    encoder_weights: WeightFormat | None = None
    activation_bits: ActivationBits | None = None

    def __post_init__(self) -> None:
        for name in ("weights", "encoder_weights"):
            if getattr(self, name) is not None:
                _require_choice(name, getattr(self, name), WEIGHT_FORMATS)
        _require_choice("kv", self.kv, KV_FORMATS)
        bits = self.activation_bits
        if bits is not None and (type(bits) is not int or bits not in ACTIVATION_BITS):
            raise RequestError(f"activation_bits must be 13 or 9, not {bits!r}.")
        _require_positive("threads", self.threads)
        if self.threads is not None and self.threads > MAX_THREADS:
            raise RequestError(f"threads must be at most {MAX_THREADS}, not {self.threads}.")

    @property
    def decoder_format(self) -> WeightFormat:
        """What the decoder's matrices are packed as."""
        return self.weights or "q8"

    @property
    def encoder_format(self) -> WeightFormat:
        """What an audio encoder's matrices are packed as."""
        if self.encoder_weights is not None:
            return self.encoder_weights
        return "q8" if self.decoder_format == "q4" else self.decoder_format


@dataclass(frozen=True)
class TranscribeOptions:
    """What is asked of one transcription.

    Attributes:
        language: name or ISO 639 code that forces the language; None lets the model detect it.
        context: text for the system turn (hot words, names); never read as control tokens.
        max_new_tokens: cap for each piece of at most 30 s; None derives it from the duration.
        loop_detection: stop a piece whose tokens repeat without end.
        batch: pieces that are decoded side by side; None chooses up to 16 by the free memory.
        chunk_seconds: longest piece, 1 to 300 s; accuracy suffers beyond 30.
        vad: leave out what a speech detector takes for silence, music or noise.
    """

    language: str | None = None
    context: str = ""
    max_new_tokens: int | None = None
    loop_detection: bool = True
    batch: int | None = None
    chunk_seconds: float = 30.0
    vad: bool = True

    def __post_init__(self) -> None:
        _require_positive("max_new_tokens", self.max_new_tokens)
        _require_positive("batch", self.batch)
        if not isinstance(self.chunk_seconds, (int, float)) or not 1 <= self.chunk_seconds <= 300:
            raise RequestError(
                f"chunk_seconds must lie between 1 and 300, not {self.chunk_seconds!r}."
            )
        if self.language is not None and not isinstance(self.language, str):
            raise RequestError(f"language must be a name or code, not {self.language!r}.")
        if not isinstance(self.context, str):
            raise RequestError(f"context must be text, not {type(self.context).__name__}.")
        _require_unicode("context", self.context)
