"""Audio8-ASR: recordings in, text out. All but the adapter and the prompt is Qwen3-ASR's."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stapes.decoder import Prompt
from stapes.decoder import expected_tensors as decoder_tensors
from stapes.decoder.weights import Shapes
from stapes.graph import NoTracer
from stapes.models.description import Description, Part
from stapes.models.qwen3_asr.audio8.adapter import Audio8Encoder, adapter_tensors, read_adapter
from stapes.models.qwen3_asr.audio8.config import Audio8Config, read_config
from stapes.models.qwen3_asr.audio8.prompt import Audio8Prompts
from stapes.models.qwen3_asr.config import CHUNK_FRAMES
from stapes.models.qwen3_asr.encoder_weights import EncoderLoader
from stapes.models.qwen3_asr.encoder_weights import expected_tensors as encoder_tensors
from stapes.models.qwen3_asr.model import Transcriber
from stapes.models.qwen3_asr.networks import ACTIVATION_BITS, Networks
from stapes.models.qwen3_asr.postprocess import Answer
from stapes.models.source import ModelSource, Readers, executors, read_decoder
from stapes.options import RuntimeOptions
from stapes.text.repetition import collapse_repetitions
from stapes.text.tokenizer import Tokenizer


class Audio8Asr(Transcriber):
    """A loaded Audio8-ASR model. It reports no language, and takes neither one nor a context."""

    def __init__(
        self,
        name: str,
        config: Audio8Config,
        tokenizer: Tokenizer,
        networks: Networks,
        load_s: float,
    ) -> None:
        super().__init__(name, config, tokenizer, networks, load_s)
        vocab_size = config.decoder.vocab_size
        self.prompts = Audio8Prompts(tokenizer, config.audio_token_id, vocab_size)

    def build_prompt(
        self, embeddings: NDArray[np.float32], context: str, forced: str | None
    ) -> Prompt:
        """See `Transcriber`."""
        return self.prompts.build(embeddings, context, forced)

    def read_answer(self, token_ids: Sequence[int], forced: str | None) -> Answer:
        """Everything is text; control tokens have none."""
        text, collapsed = collapse_repetitions(self.tokenizer.decode(token_ids).strip())
        return Answer(text.strip(), None, collapsed)


def audio_tensors(config: Audio8Config) -> Shapes:
    """Names and shapes of every tensor of encoder and adapter."""
    encoder = encoder_tensors(config.encoder, config.encoder_names)
    return encoder | adapter_tensors(config.adapter)


def networks_from(
    config: Audio8Config, readers: Readers, options: RuntimeOptions, tracer: NoTracer
) -> Networks:
    """Read the weights, which are known to be there, and build the executors."""
    tower = EncoderLoader(readers.encoder, config.encoder_names).load(config.encoder)
    adapter = read_adapter(readers.encoder, config.adapter)
    make_executor = executors(readers, options, tracer, ACTIVATION_BITS)
    encoder = Audio8Encoder(config, tower, adapter, make_executor)
    decoder = read_decoder(config.decoder, readers, options, tracer, ACTIVATION_BITS)
    return Networks(encoder, decoder)


def load_source(
    source: ModelSource, name: str, options: RuntimeOptions, tracer: NoTracer, started: float
) -> Audio8Asr:
    """Load a checkpoint or a converted file.

    `started` is the time, by `time.perf_counter`, from which loading is counted.

    Raises:
        ModelError: a file is missing, damaged, or says what is not supported.
    """
    tokenizer = source.tokenizer()
    config = read_config(source.files, tokenizer)
    expected = audio_tensors(config) | decoder_tensors(config.decoder)
    with source.readers(expected, config.decoder, options) as readers:
        networks = networks_from(config, readers, options, tracer)
    loaded = time.perf_counter()
    tracer.stage("load", started, loaded)
    return Audio8Asr(name, config, tokenizer, networks, loaded - started)


def describe(source: ModelSource) -> Description:
    """See `models.description.Description`."""
    config = read_config(source.files, source.tokenizer())
    sizes = {**vars(config.encoder), **config.adapter.sizes()}
    parts = {
        "encoder": Part(sizes, audio_tensors(config)),
        "decoder": Part(config.decoder.sizes(), decoder_tensors(config.decoder)),
    }
    # A chunk is a second.
    return Description("arkasr", parts, config.decoder, config.adapter.tokens(60 * CHUNK_FRAMES))
