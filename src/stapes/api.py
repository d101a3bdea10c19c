"""The Python interface: `stapes.load`, its siblings for other models, and `stapes.stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stapes.models.interface import Aligner, SpeechModel
from stapes.options import ActivationBits, KvFormat, WeightFormat

if TYPE_CHECKING:
    from pathlib import Path

    from stapes.graph import NoTracer
    from stapes.models.qwen3_asr.aligner import ForcedAligner
    from stapes.models.qwen_text import TextModel
    from stapes.models.vevo2.pipeline import VoiceModel
    from stapes.streaming.policy import StreamPolicy
    from stapes.streaming.stream import Stream

DEFAULT_MODEL = "tiny-en"


def load(
    model: str | Path = DEFAULT_MODEL,
    *,
    weights: WeightFormat | None = None,
    kv: KvFormat = "f16",
    threads: int | None = None,
    encoder_weights: WeightFormat | None = None,
    activation_bits: ActivationBits | None = None,
    tracer: NoTracer | None = None,
) -> SpeechModel:
    """Load a model once, for any number of recordings.

    Args:
        model: the name of a bundled model, a folder with a checkpoint, or a converted file.
        weights: format of the matrices in memory: f32, bf16, q8 or q4; None takes what a converted
            file holds, and q8 for a checkpoint.
        kv: storage format of the KV cache: f16, f32 or bf16.
        threads: worker threads; None takes what the affinity mask and the CPU quota allow.
        encoder_weights: format of the audio encoder's matrices; None takes that of the others, but
            q8 for q4.
        activation_bits: of activations beside q8 weights, 9 or 13; None takes 9, which is faster
            with AVX-512.
        tracer: a `stapes.graph.Tracer` that records where the time goes.

    Returns:
        A model whose `transcribe` may be called from several threads.

    Raises:
        RequestError: an argument is wrong.
        ModelError: the model's files are missing, damaged or not supported.
        CapacityError: the model does not fit into memory.
    """
    from stapes.models import registry

    return registry.load(
        model,
        weights=weights,
        encoder_weights=encoder_weights,
        kv=kv,
        threads=threads,
        activation_bits=activation_bits,
        tracer=tracer,
    )


def load_text(
    model: str | Path,
    *,
    weights: WeightFormat | None = None,
    kv: KvFormat = "f16",
    threads: int | None = None,
    activation_bits: ActivationBits | None = None,
    tracer: NoTracer | None = None,
) -> TextModel:
    """Load a text model once, for any number of prompts and chats.

    Args:
        model: a folder with a Qwen2 or Qwen3 checkpoint, a GGUF file of llama.cpp, or a converted
            file.
        weights: format of the matrices in memory; see `load` for this and the next ones.
        kv: storage format of the KV cache.
        threads: worker threads.
        activation_bits: of activations beside q8 weights; None takes 13.
        tracer: records where the time goes.

    Returns:
        A model whose `generate` continues a text, and whose `chat` writes a chat's next message.

    Raises:
        RequestError, ModelError, CapacityError: see `load`.
    """
    from stapes.models import registry

    return registry.load_text(
        model,
        weights=weights,
        kv=kv,
        threads=threads,
        activation_bits=activation_bits,
        tracer=tracer,
    )


def load_aligner(
    model: str | Path,
    *,
    weights: WeightFormat | None = None,
    kv: KvFormat = "f16",
    threads: int | None = None,
    encoder_weights: WeightFormat | None = None,
    activation_bits: ActivationBits | None = None,
    tracer: NoTracer | None = None,
) -> ForcedAligner:
    """Load a forced aligner once, for any number of recordings with known texts.

    Args:
        model: a folder with a Qwen3-ForcedAligner checkpoint, or a converted file.
        weights: format of the matrices in memory; see `load` for this and the next ones.
        kv: storage format of the KV cache.
        threads: worker threads.
        encoder_weights: format of the audio encoder's matrices.
        activation_bits: of activations beside q8 weights.
        tracer: records where the time goes.

    Returns:
        A model whose `align` tells when each word of a recording is spoken.

    Raises:
        RequestError, ModelError, CapacityError: see `load`.
    """
    from stapes.models import registry

    return registry.load_aligner(
        model,
        weights=weights,
        encoder_weights=encoder_weights,
        kv=kv,
        threads=threads,
        activation_bits=activation_bits,
        tracer=tracer,
    )


def load_voice(
    model: str | Path,
    *,
    weights: WeightFormat | None = None,
    kv: KvFormat = "f16",
    threads: int | None = None,
    encoder_weights: WeightFormat | None = None,
    acoustic_weights: WeightFormat | None = None,
    whisper: str | Path | None = None,
    tracer: NoTracer | None = None,
) -> VoiceModel:
    """Open a voice model once, for any number of texts and recordings.

    Its networks are loaded when they are first needed: converting a voice in the source's style
    takes less memory than speaking does. The weights of Vevo2 are licensed CC-BY-NC-ND-4.0: no
    commercial use, no redistribution of converted weights.

    Args:
        model: the folder of Vevo2, as it is published (RMSnow/Vevo2).
        weights: format of the matrices of the autoregressive stage; None takes bf16, as published.
        kv: storage format of its KV cache.
        threads: worker threads.
        encoder_weights: format of the tokenizers' and Whisper's matrices; None takes f32.
        acoustic_weights: format of the matrices of flow matching and vocoder; None takes bf16.
        whisper: the folder or .pt file of Whisper medium; None looks for a folder whisper-medium
            inside the model's folder and beside it.
        tracer: records where the time goes.

    Returns:
        A model that has `speak`, `speak_pieces`, `convert_voice` and `run`.

    Raises:
        RequestError, ModelError, CapacityError: see `load`; those of files that are first read
            later are raised then.
    """
    from stapes.models import registry

    return registry.load_voice(
        model,
        weights=weights,
        encoder_weights=encoder_weights,
        acoustic_weights=acoustic_weights,
        kv=kv,
        threads=threads,
        whisper=whisper,
        tracer=tracer,
    )


def stream(
    model: SpeechModel,
    *,
    policy: StreamPolicy | None = None,
    language: str | None = None,
    context: str = "",
    sample_rate: int = 16_000,
    vad: bool = True,
    aligner: Aligner | None = None,
    reuse: bool = True,
) -> Stream:
    """Transcribe while people speak: `feed` samples, `poll` events, `finish`.

    Args:
        model: a loaded Qwen3-ASR model. Any number of streams may share it.
        policy: when the stream looks at its audio, and when text is settled; by default
            `StreamPolicy()`.
        language: name or ISO 639 code that forces the language; None detects it, utterance by
            utterance.
        context: names and words to expect; never read as control tokens.
        sample_rate: Hz of what is fed.
        vad: let a speech detector cut the stream into utterances and leave out what is no speech;
            False takes everything for speech.
        aligner: of `load_aligner`; gives final events the times of their words.
        reuse: False computes everything anew at each step, for comparison.

    Returns:
        A `stapes.streaming.stream.Stream`. It has no threads: all work is done in `poll`.

    Raises:
        RequestError: an argument is wrong, or the model cannot transcribe live.
        CapacityError: the context and the longest utterance do not fit the model.
    """
    from stapes.streaming.make import make_stream

    return make_stream(
        model,
        policy=policy,
        language=language,
        context=context,
        sample_rate=sample_rate,
        vad=vad,
        aligner=aligner,
        reuse=reuse,
    )
