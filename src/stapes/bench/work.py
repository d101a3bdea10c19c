"""The arithmetic and the reading that a network's stages cannot do without.

FLOPs are two for every multiplication of a weight, or of a query or a probability in attention.
Norms, activations and quantising are left out; so is what padding adds.
"""

from __future__ import annotations

from stapes.decoder import Decoder, DecoderSpec
from stapes.decoder.session import PREFILL_ROWS
from stapes.models.qwen3_asr.config import CHUNK_FRAMES, CHUNK_TOKENS, EncoderSpec
from stapes.models.qwen3_asr.encoder import AudioEncoder, audio_tokens
from stapes.models.qwen3_asr.encoder_weights import halved

_PAGE_POSITIONS = 512


def step_bytes(decoder: Decoder, positions: int, batch: int) -> int:
    """Bytes that a step of `batch` sequences must read: every weight once, and every cache.

    Of an embedding that is not the head too, a step reads next to nothing.
    """
    weights = decoder.weights
    untied = weights.embedding.nbytes if weights.head is not weights.embedding else 0
    return weights.nbytes - untied + cache_bytes(decoder, positions) * batch


def cache_bytes(decoder: Decoder, positions: int) -> int:
    """Bytes of a cache's keys and values of so many positions, in all layers."""
    return decoder.new_cache().page_bytes * positions // _PAGE_POSITIONS


def step_flops(spec: DecoderSpec, positions: int, batch: int) -> float:
    """FLOPs of a step of `batch` sequences that see so many positions each."""
    inter, hidden = spec.intermediate_size, spec.hidden_size
    layer = hidden * (2 * spec.q_size + 2 * spec.kv_size + 3 * inter) + 2 * spec.q_size * positions
    return 2.0 * batch * (spec.num_hidden_layers * layer + hidden * spec.head_size)


def prefill_bytes(decoder: Decoder, rows: int) -> int:
    """Bytes that a prefill must read: the layers once for every block of rows, the head once."""
    head = decoder.weights.head.nbytes
    layers = decoder.weights.nbytes - decoder.weights.embedding.nbytes
    layers -= head if decoder.weights.head is not decoder.weights.embedding else 0
    return layers * -(-rows // PREFILL_ROWS) + head


def prefill_flops(spec: DecoderSpec, rows: int) -> float:
    """FLOPs of a prefill from an empty cache, whose last row alone is picked."""
    hidden, inter = spec.hidden_size, spec.intermediate_size
    qkv = hidden * (spec.q_size + 2 * spec.kv_size)
    after_attention = hidden * (spec.q_size + 3 * inter)
    layers = spec.num_hidden_layers
    every_row = layers * qkv + (layers - 1) * after_attention
    keys = rows * (rows + 1) / 2
    attention = 2 * layers * spec.q_size * keys
    return 2.0 * (rows * every_row + attention + after_attention + hidden * spec.head_size)


def encode_bytes(encoder: AudioEncoder) -> int:
    """Bytes that encoding must read: every weight once."""
    plans = (encoder._stem.plan, encoder._body.plan)
    return sum(matrix.nbytes for plan in plans for matrix in plan.matrices)


def encode_flops(spec: EncoderSpec, frames: int) -> float:
    """FLOPs of the conv stem and the body for so many mel frames; the stem reads whole chunks."""
    chunks = -(-frames // CHUNK_FRAMES)
    tokens = audio_tokens(frames)
    windows, rest = divmod(tokens, spec.window_tokens)
    pairs = windows * spec.window_tokens**2 + rest**2
    attention = spec.encoder_layers * 2 * spec.d_model * pairs
    return 2.0 * (chunks * _chunk_products(spec) + tokens * _token_products(spec) + attention)


def _chunk_products(spec: EncoderSpec) -> int:
    """Of three convolutions of 3 x 3 and stride 2, and the layer behind them."""
    channels, mels = spec.downsample_hidden_size, spec.num_mel_bins
    products, inputs = 0, 1
    for times in (1, 2, 3):
        pixels = halved(CHUNK_FRAMES, times) * halved(mels, times)
        products += pixels * 9 * inputs * channels
        inputs = channels
    return products + CHUNK_TOKENS * halved(mels, 3) * channels * spec.d_model


def _token_products(spec: EncoderSpec) -> int:
    """Of the layers' matrices and the projector."""
    d = spec.d_model
    layer = 4 * d * d + 2 * d * spec.encoder_ffn_dim
    return spec.encoder_layers * layer + d * d + d * spec.output_dim
