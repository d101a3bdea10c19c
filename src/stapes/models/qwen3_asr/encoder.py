"""The audio encoder: log-mel frames -> embedding rows for the decoder.

Two plans. The stem turns chunks of 100 frames into 13 rows each, every chunk on its own. The body
runs the transformer over the rows that stand for sound, with attention confined to windows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np
from numpy.typing import NDArray

from stapes.graph import Executor, GraphBuilder, Plan, View
from stapes.models.qwen3_asr.config import CHUNK_FRAMES, CHUNK_TOKENS, EncoderSpec
from stapes.models.qwen3_asr.encoder_weights import (
    EncoderLayerWeights,
    EncoderWeights,
    Norm,
    halved,
)

F32 = NDArray[np.float32]

_EPS = 1e-5  # torch's default for LayerNorm, which the reference uses
_STEM_CHUNKS = 4  # chunks of one stem run: bounds its working memory (6 MB a chunk at 480 channels)
_MAX_TIMESCALE = 10000.0  # of the sinusoids, as in Whisper


def audio_tokens(frames: int) -> int:
    """Embedding rows of so many mel frames: 13 a whole chunk, three halvings of the rest."""
    chunks, rest = divmod(frames, CHUNK_FRAMES)
    return CHUNK_TOKENS * chunks + halved(rest, 3)


def sinusoids(length: int, channels: int) -> F32:
    """[length, channels] in f32: sines in the first half, cosines in the second."""
    half = channels // 2
    step = np.log(_MAX_TIMESCALE) / (half - 1)
    rates = np.exp(np.float32(-step) * np.arange(half, dtype=np.float32))
    angles = np.arange(length, dtype=np.float32)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def build_stem(spec: EncoderSpec, weights: EncoderWeights) -> Plan:
    """Mel [chunks * 100, mels] -> rows [chunks * 13, d_model], sinusoids added."""
    g = GraphBuilder("chunks")
    mel = g.input("mel", "chunks", spec.num_mel_bins, per_row=CHUNK_FRAMES)
    x, height, width = mel.rows_of(1), CHUNK_FRAMES, spec.num_mel_bins
    for conv in weights.convs:
        x = g.conv2d(x, height, width, conv.matrix, conv.bias, activation="gelu")
        height, width = halved(height, 1), halved(width, 1)
    rows = g.linear(x.rows_of(width * spec.downsample_hidden_size), weights.conv_out)
    g.output("rows", g.add_periodic(rows, sinusoids(CHUNK_TOKENS, spec.d_model)))
    return g.build()


def build_body(spec: EncoderSpec, weights: EncoderWeights) -> Plan:
    """Rows [tokens, d_model], starts and ends [tokens] -> embeddings [tokens, output_dim]."""
    g = GraphBuilder("tokens")
    x = g.input("rows", "tokens", spec.d_model)
    starts, ends = g.index_input("starts", "tokens"), g.index_input("ends", "tokens")
    for layer in weights.layers:
        x = g.add(x, _attention(g, spec, layer, x, starts, ends))
        hidden = g.linear(_norm(g, x, layer.mlp_norm), layer.fc1.matrix, layer.fc1.bias, "gelu")
        x = g.add(x, g.linear(hidden, layer.fc2.matrix, layer.fc2.bias))
    x = _norm(g, x, weights.ln_post)
    x = g.linear(x, weights.proj1.matrix, weights.proj1.bias, "gelu")
    g.output("embeddings", g.linear(x, weights.proj2.matrix, weights.proj2.bias))
    return g.build()


def _norm(g: GraphBuilder, x: View, norm: Norm) -> View:
    return g.layer_norm(x, norm.weight, norm.bias, _EPS)


def _attention(
    g: GraphBuilder,
    spec: EncoderSpec,
    layer: EncoderLayerWeights,
    x: View,
    starts: View,
    ends: View,
) -> View:
    qkv = g.linear(_norm(g, x, layer.attention_norm), layer.qkv.matrix, layer.qkv.bias)
    q, k, v = qkv.split(spec.d_model, spec.d_model, spec.d_model)
    heads, head_dim = spec.encoder_attention_heads, spec.head_dim
    attended = g.window_attention(q, k, v, starts, ends, heads=heads, head_dim=head_dim)
    return g.linear(attended, layer.out.matrix, layer.out.bias)


class AudioEncoder:
    """Encodes recordings; holds no state between calls."""

    def __init__(
        self,
        spec: EncoderSpec,
        weights: EncoderWeights,
        make_executor: Callable[[Plan], Executor],
    ) -> None:
        self.spec = spec
        self._stem = make_executor(build_stem(spec, weights))
        self._body = make_executor(build_body(spec, weights))

    def tokens(self, frames: int) -> int:
        """Rows that `encode` makes of so many mel frames."""
        return audio_tokens(frames)

    def encode(self, mel: F32) -> F32:
        """Mel [frames, num_mel_bins] f32 -> embeddings [tokens(frames), output_dim] f32."""
        return self.body(self.stem(mel))

    def encode_steps(self, mel: F32) -> Generator[None, None, F32]:
        """What `encode` returns, bit for bit, in steps of one attention window (8 s of sound).

        It yields between the steps, so that other work can be done meanwhile.
        """
        step = self.spec.window_tokens // CHUNK_TOKENS * CHUNK_FRAMES
        parts = [self.body(self.stem(mel[:step]))]
        for start in range(step, mel.shape[0], step):
            yield
            parts.append(self.body(self.stem(mel[start : start + step])))
        return np.concatenate(parts)

    def stem(self, mel: F32) -> F32:
        """Mel [frames, num_mel_bins] -> rows [audio_tokens(frames), d_model].

        The last chunk is padded with zeros to 100 frames, and the rows of the padding dropped.
        """
        frames = mel.shape[0]
        chunks = -(-frames // CHUNK_FRAMES)
        padded = np.zeros((chunks * CHUNK_FRAMES, mel.shape[1]), np.float32)
        padded[:frames] = mel
        step = _STEM_CHUNKS * CHUNK_FRAMES
        rows = [
            self._stem.run({"mel": padded[i : i + step]})["rows"]
            for i in range(0, padded.shape[0], step)
        ]
        return np.concatenate(rows)[: audio_tokens(frames)].astype(np.float32, copy=False)

    def body(self, rows: F32) -> F32:
        """Rows [tokens, d_model], beginning at a window's start -> [tokens, output_dim]."""
        tokens = np.arange(rows.shape[0], dtype=np.int32)
        window = self.spec.window_tokens
        starts = tokens // window * window
        ends = np.minimum(starts + window, rows.shape[0])
        inputs = {"rows": rows, "starts": starts, "ends": ends}
        return self._body.run(inputs)["embeddings"].astype(np.float32, copy=False)
