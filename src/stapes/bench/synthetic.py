"""Full-size models with random weights: what a benchmark runs when no checkpoint is there."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.decoder import DecoderSpec, SamplingOptions
from stapes.decoder import expected_tensors as decoder_tensors
from stapes.models.qwen3_asr.config import LAYOUT_HF, EncoderSpec, Qwen3AsrConfig
from stapes.models.qwen3_asr.networks import ACTIVATION_BITS, expected_tensors
from stapes.models.vevo2.autoregressive.options import CodeOptions
from stapes.options import ActivationBits, RuntimeOptions
from stapes.weights.matrix import bf16_to_f32, f32_to_bf16

F32 = NDArray[np.float32]

_POOL = 1 << 22  # distinct random values that all matrices are cut from
_FAN_IN_SCALE = 1.6  # with 0.02 everywhere a random decoder repeats its last token


def _asr_config(encoder: EncoderSpec, hidden_size: int, intermediate_size: int) -> Qwen3AsrConfig:
    encoder_names, decoder_names = LAYOUT_HF
    decoder = DecoderSpec(
        hidden_size=hidden_size,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=intermediate_size,
        vocab_size=151936,
        max_position_embeddings=65536,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        tie_word_embeddings=True,
        attention_bias=False,
        qk_norm=True,
        eos_token_ids=frozenset(),  # a benchmark decodes as many tokens as it was asked for
        names=decoder_names,
    )
    return Qwen3AsrConfig(encoder, encoder_names, decoder, audio_token_id=151676)


#: The published sizes.
SYNTHETIC: dict[str, Qwen3AsrConfig] = {
    "qwen3-asr-0.6b": _asr_config(EncoderSpec(896, 18, 14, 3584, 1024, 128, 480, 800), 1024, 3072),
    "qwen3-asr-1.7b": _asr_config(EncoderSpec(1024, 24, 16, 4096, 2048, 128, 480, 800), 2048, 6144),
}


#: Decoders without an encoder, of the published sizes.
SYNTHETIC_DECODERS: dict[str, DecoderSpec] = {
    "vevo2-ar": DecoderSpec(
        hidden_size=896,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=4864,
        vocab_size=168565,
        max_position_embeddings=32768,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        tie_word_embeddings=True,
        attention_bias=True,
        qk_norm=False,
        eos_token_ids=frozenset(),
    ),
}

#: How those are sampled that are not greedy.
SAMPLING: dict[str, SamplingOptions] = {"vevo2-ar": CodeOptions(seed=0).sampling(1.1)}


def activation_bits(name: str, runtime: RuntimeOptions) -> ActivationBits:
    """What the options ask for, or else what models of that name take."""
    return runtime.activation_bits or (ACTIVATION_BITS if name in SYNTHETIC else 13)


def decoder_spec(name: str) -> DecoderSpec:
    """The decoder of one of `SYNTHETIC` or `SYNTHETIC_DECODERS`."""
    return SYNTHETIC[name].decoder if name in SYNTHETIC else SYNTHETIC_DECODERS[name]


def synthetic_tensors(name: str) -> RandomTensors:
    """Random weights of one of `SYNTHETIC` or `SYNTHETIC_DECODERS`."""
    return RandomTensors(SYNTHETIC.get(name) or SYNTHETIC_DECODERS[name])


@dataclass(frozen=True, eq=False)
class RandomTensor:
    """bf16 words."""

    words: NDArray[np.uint16]

    def raw(self) -> NDArray[np.uint16]:
        """The words, in the tensor's shape."""
        return self.words

    def to_f32(self) -> F32:
        """The values as f32."""
        return bf16_to_f32(self.words)


class RandomTensors:
    """A source of random tensors of a model's shapes, the same for the same seed.

    Matrices are normal with a deviation of 1.6 / sqrt(fan-in), the embedding 0.02; norms are 1 and
    biases 0.
    """

    def __init__(self, config: Qwen3AsrConfig | DecoderSpec, seed: int = 0) -> None:
        if isinstance(config, DecoderSpec):
            self._shapes, names = decoder_tensors(config), config.names
        else:
            self._shapes, names = expected_tensors(config), config.decoder.names
        self._embedding = names.token_embedding
        self._pool = np.random.default_rng(seed).standard_normal(_POOL, dtype=np.float32)

    def __getitem__(self, name: str) -> RandomTensor:
        shape = self._shapes[name]
        if len(shape) == 1:
            value = 0.0 if name.endswith("bias") else 1.0
            return RandomTensor(f32_to_bf16(np.full(shape, value, np.float32)))
        fan_in = math.prod(shape[1:])
        scale = 0.02 if name == self._embedding else _FAN_IN_SCALE / math.sqrt(fan_in)
        count = math.prod(shape)
        words = f32_to_bf16(self._pool * np.float32(scale))
        start = zlib.crc32(name.encode()) % _POOL  # whatever the order of reading
        copies = -(-(start + count) // _POOL)
        return RandomTensor(np.tile(words, copies)[start : start + count].reshape(shape))

    def release(self, name: str) -> None:
        """Nothing is kept."""
