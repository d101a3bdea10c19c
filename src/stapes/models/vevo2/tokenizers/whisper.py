"""Whisper's encoder: 30 s of sound -> 1500 rows of features.

Two plans with the windows of the second convolution between them: the first runs over mel frames,
the second over positions. A recording is padded with silence or cut to 30 s, and every position
sees every other, the silence included, as Whisper was trained.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stapes.audio import log_mel
from stapes.errors import NumericError
from stapes.graph import Array, Executor, GraphBuilder, Plan, View
from stapes.models.vevo2.tokenizers.unfold import unfolded
from stapes.models.vevo2.tokenizers.whisper_config import WhisperSpec
from stapes.models.vevo2.tokenizers.whisper_weights import WhisperLayerWeights, WhisperWeights
from stapes.models.vevo2.voice import F32

_EPS = 1e-5  # torch's default for LayerNorm, which Whisper keeps
_HOP = 160  # samples of a mel frame


def build_stem(spec: WhisperSpec, weights: WhisperWeights) -> Plan:
    """Windows [frames, 3 * num_mel_bins] -> rows [frames, d_model]: the first convolution."""
    g = GraphBuilder("frames")
    windows = g.input("windows", "frames", 3 * spec.num_mel_bins)
    g.output("rows", g.linear(windows, weights.conv1.matrix, weights.conv1.bias, "gelu"))
    return g.build()


def build_body(spec: WhisperSpec, weights: WhisperWeights) -> Plan:
    """Windows [positions, 3 * d_model], starts and ends [positions] -> features of that many rows.

    The second convolution, the table of positions, the layers and the last norm.
    """
    g = GraphBuilder("positions")
    windows = g.input("windows", "positions", 3 * spec.d_model)
    starts, ends = g.index_input("starts", "positions"), g.index_input("ends", "positions")
    x = g.linear(windows, weights.conv2.matrix, weights.conv2.bias, "gelu")
    x = g.add_periodic(x, weights.positions)
    for layer in weights.layers:
        x = g.add(x, _attention(g, spec, layer, x, starts, ends))
        normed = layer.mlp_norm.apply(g, x, _EPS)
        hidden = g.linear(normed, layer.fc1.matrix, layer.fc1.bias, "gelu")
        x = g.add(x, g.linear(hidden, layer.fc2.matrix, layer.fc2.bias))
    g.output("features", weights.ln_post.apply(g, x, _EPS))
    return g.build()


def _attention(
    g: GraphBuilder,
    spec: WhisperSpec,
    layer: WhisperLayerWeights,
    x: View,
    starts: View,
    ends: View,
) -> View:
    normed = layer.attention_norm.apply(g, x, _EPS)
    qkv = g.linear(normed, layer.qkv.matrix, layer.qkv.bias)
    q, k, v = qkv.split(spec.d_model, spec.d_model, spec.d_model)
    heads, head_dim = spec.encoder_attention_heads, spec.head_dim
    attended = g.window_attention(q, k, v, starts, ends, heads=heads, head_dim=head_dim)
    return g.linear(attended, layer.out.matrix, layer.out.bias)


class WhisperEncoder:
    """Encodes 30 s at a time; holds no state between calls."""

    def __init__(
        self,
        spec: WhisperSpec,
        weights: WhisperWeights,
        make_executor: Callable[[Plan], Executor],
    ) -> None:
        self.spec = spec
        self._stem = make_executor(build_stem(spec, weights))
        self._body = make_executor(build_body(spec, weights))

    @property
    def positions(self) -> int:
        """Rows of one encoding: 1500, 50 a second."""
        return self.spec.max_source_positions

    def features(self, samples: F32) -> F32:
        """Samples f32 [n], n > 0, mono, 16 kHz, cut or padded to 30 s -> f32 [1500, d_model]."""
        return self.encode(self.mel(samples))

    def mel(self, samples: F32) -> F32:
        """Samples f32 [n] at 16 kHz -> log-mel f32 [3000, num_mel_bins] of exactly 30 s."""
        wanted = self.spec.mel_frames * _HOP
        samples = np.pad(samples[:wanted], (0, max(0, wanted - samples.size)))
        return log_mel(samples, self.spec.num_mel_bins)

    def encode(self, mel: F32) -> F32:
        """Log-mel f32 [3000, num_mel_bins] -> f32 [1500, d_model]; NumericError if not finite."""
        rows = self._stem.run({"windows": unfolded(mel, 3)})["rows"]
        count = self.positions
        inputs: dict[str, Array] = {
            "windows": unfolded(rows.astype(np.float32, copy=False), 3, stride=2),
            "starts": np.zeros(count, np.int32),
            "ends": np.full(count, count, np.int32),
        }
        features = self._body.run(inputs)["features"].astype(np.float32, copy=False)
        if not np.isfinite(features).all():
            raise NumericError("Whisper's encoder computed values that are not finite.")
        return features
