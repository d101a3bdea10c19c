"""The two networks of a model, packed and ready to run on one engine."""

from __future__ import annotations

from dataclasses import dataclass

from stapes.decoder import Decoder
from stapes.decoder import expected_tensors as decoder_tensors
from stapes.decoder.weights import Shapes
from stapes.errors import ConfigError
from stapes.graph import NO_TRACE, Engine, NoTracer
from stapes.models.qwen3_asr.config import Qwen3AsrConfig
from stapes.models.qwen3_asr.encoder import AudioEncoder
from stapes.models.qwen3_asr.encoder_weights import EncoderLoader
from stapes.models.qwen3_asr.encoder_weights import expected_tensors as encoder_tensors
from stapes.models.source import Readers, checkpoint_readers, executors, read_decoder
from stapes.options import ActivationBits, RuntimeOptions
from stapes.system import default_threads
from stapes.weights import TensorSource

#: Bits of activations beside q8 weights. A transcript bears the coarser rounding, and encoding and
#: prefill, which are most of the work, gain most by it (docs/fidelity.md has both).
ACTIVATION_BITS: ActivationBits = 9


@dataclass(frozen=True)
class Networks:
    """The audio encoder and the decoder."""

    encoder: AudioEncoder
    decoder: Decoder


def expected_tensors(config: Qwen3AsrConfig) -> Shapes:
    """Names and shapes of every tensor that the checkpoint must hold."""
    return encoder_tensors(config.encoder, config.encoder_names) | decoder_tensors(config.decoder)


def build_networks(
    config: Qwen3AsrConfig,
    source: TensorSource,
    options: RuntimeOptions,
    tracer: NoTracer = NO_TRACE,
) -> Networks:
    """Pack the weights of a source, which has every expected tensor, and build the executors."""
    engine = Engine(options.threads or default_threads())
    return networks_from(config, checkpoint_readers(source, engine, options), options, tracer)


def networks_from(
    config: Qwen3AsrConfig, readers: Readers, options: RuntimeOptions, tracer: NoTracer = NO_TRACE
) -> Networks:
    """Read the weights, which were checked against `expected_tensors`, and build the executors."""
    if config.encoder.output_dim != config.decoder.hidden_size:
        raise ConfigError(
            f"The encoder's output_dim is {config.encoder.output_dim}, but the decoder's "
            f"hidden_size is {config.decoder.hidden_size}."
        )
    make_executor = executors(readers, options, tracer, ACTIVATION_BITS)
    loader = EncoderLoader(readers.encoder, config.encoder_names)
    encoder = AudioEncoder(config.encoder, loader.load(config.encoder), make_executor)
    decoder = read_decoder(config.decoder, readers, options, tracer, ACTIVATION_BITS)
    return Networks(encoder, decoder)
