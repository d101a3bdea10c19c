"""The adapter: rows of the audio encoder -> fewer and narrower rows for the decoder.

Residual blocks and a norm over the encoder's rows, means over stretches of them, a norm and a
projection. The means shorten 13 rows a second to 12.5.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

from stapes.decoder.weights import Shapes
from stapes.graph import Executor, GraphBuilder, Plan
from stapes.models.qwen3_asr.audio8.assumptions import ASSUMED
from stapes.models.qwen3_asr.audio8.config import AdapterSpec, Audio8Config
from stapes.models.qwen3_asr.encoder import F32, AudioEncoder
from stapes.models.qwen3_asr.encoder_weights import Affine, EncoderWeights, Norm, affine_tensors
from stapes.weights import WeightReader
from stapes.weights.matrix import bf16_to_f32, f32_to_bf16

_BLOCKS, _FINAL_NORM = "audio_mlp_tower.layers", "audio_mlp_tower.final_norm"
_PROJECTOR_NORM, _PROJECTOR = "audio_projector.0", "audio_projector.1"


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """One residual block."""

    norm: Norm
    fc1: Affine
    fc2: Affine


@dataclass(frozen=True, eq=False)
class AdapterWeights:
    """All weights of the adapter."""

    blocks: tuple[BlockWeights, ...]
    final_norm: Norm
    projector_norm: Norm
    projector: Affine


def adapter_tensors(spec: AdapterSpec) -> Shapes:
    """Names and shapes of every tensor of the adapter."""
    width, hidden = spec.input_size, spec.mlp_tower_hidden_size
    shapes = affine_tensors(_FINAL_NORM, width) | affine_tensors(_PROJECTOR_NORM, width)
    for i in range(spec.mlp_tower_layers):
        shapes |= affine_tensors(f"{_BLOCKS}.{i}.norm", width)
        shapes |= affine_tensors(f"{_BLOCKS}.{i}.fc1", hidden, width)
        shapes |= affine_tensors(f"{_BLOCKS}.{i}.fc2", width, hidden)
    return shapes | affine_tensors(_PROJECTOR, spec.output_size, width)


def read_adapter(reader: WeightReader, spec: AdapterSpec) -> AdapterWeights:
    """The weights; what the reader has was checked against `adapter_tensors`."""

    def norm(name: str) -> Norm:
        return Norm(reader.vector(f"{name}.weight"), reader.vector(f"{name}.bias"))

    def affine(name: str) -> Affine:
        return Affine(reader.matrix(f"{name}.weight"), reader.vector(f"{name}.bias"))

    prefixes = [f"{_BLOCKS}.{i}" for i in range(spec.mlp_tower_layers)]
    return AdapterWeights(
        blocks=tuple(
            BlockWeights(norm(f"{p}.norm"), affine(f"{p}.fc1"), affine(f"{p}.fc2"))
            for p in prefixes
        ),
        final_norm=norm(_FINAL_NORM),
        projector_norm=norm(_PROJECTOR_NORM),
        projector=affine(_PROJECTOR),
    )


def build_blocks(spec: AdapterSpec, weights: AdapterWeights) -> Plan:
    """Rows [tokens, input_size] -> rows [tokens, input_size]."""
    g = GraphBuilder("tokens")
    x, eps = g.input("rows", "tokens", spec.input_size), ASSUMED.layer_norm_eps
    for block in weights.blocks:
        normed = g.layer_norm(x, block.norm.weight, block.norm.bias, eps)
        hidden = g.linear(normed, block.fc1.matrix, block.fc1.bias, "gelu")
        x = g.add(x, g.linear(hidden, block.fc2.matrix, block.fc2.bias))
    norm = weights.final_norm
    g.output("refined", g.layer_norm(x, norm.weight, norm.bias, eps))
    return g.build()


def build_projector(spec: AdapterSpec, weights: AdapterWeights) -> Plan:
    """Rows [tokens, input_size] -> embeddings [tokens, output_size]."""
    g = GraphBuilder("tokens")
    x, norm = g.input("rows", "tokens", spec.input_size), weights.projector_norm
    x = g.layer_norm(x, norm.weight, norm.bias, ASSUMED.layer_norm_eps)
    projector = weights.projector
    g.output("embeddings", g.linear(x, projector.matrix, projector.bias))
    return g.build()


def stretch_means(rows: F32, count: int) -> F32:
    """[n, width] -> [count, width]; row i is the mean of rows i * n / count to (i + 1) * n / count.

    Bounds are rounded outwards, so neighbours may share a row: adaptive average pooling.
    """
    starts = np.arange(count) * rows.shape[0] // count
    ends = -(-np.arange(1, count + 1) * rows.shape[0] // count)
    sums: F32 = rows[starts]
    for offset in range(1, int((ends - starts).max())):
        longer = starts + offset < ends
        sums[longer] += rows[starts[longer] + offset]
    sums /= (ends - starts)[:, np.newaxis].astype(np.float32)
    return sums


class Audio8Encoder(AudioEncoder):
    """Qwen3-ASR's audio encoder with the adapter behind it; holds no state between calls."""

    def __init__(
        self,
        config: Audio8Config,
        tower: EncoderWeights,
        adapter: AdapterWeights,
        make_executor: Callable[[Plan], Executor],
    ) -> None:
        super().__init__(config.encoder, tower, make_executor)
        self._adapter = config.adapter
        self._blocks = make_executor(build_blocks(config.adapter, adapter))
        self._projector = make_executor(build_projector(config.adapter, adapter))

    def tokens(self, frames: int) -> int:
        """Rows that `encode` makes of so many mel frames."""
        return self._adapter.tokens(frames)

    def encode(self, mel: F32) -> F32:
        """Mel [frames, num_mel_bins] f32 -> embeddings [tokens(frames), output_size] f32."""
        return self.adapt(super().encode(_rounded(mel)), self.tokens(mel.shape[0]))

    def encode_steps(self, mel: F32) -> Generator[None, None, F32]:
        """See `AudioEncoder`; the adapter is a step of its own."""
        rows = yield from super().encode_steps(_rounded(mel))
        yield
        return self.adapt(rows, self.tokens(mel.shape[0]))

    def adapt(self, rows: F32, count: int) -> F32:
        """Rows of the encoder [n, input_size] -> embeddings [count, output_size]."""
        refined = self._blocks.run({"rows": rows})["refined"].astype(np.float32, copy=False)
        means = stretch_means(refined, count)
        return self._projector.run({"rows": means})["embeddings"].astype(np.float32, copy=False)


def _rounded(mel: F32) -> F32:
    """What the adapter's checkpoint is assumed to have been trained with."""
    return bf16_to_f32(f32_to_bf16(mel)) if ASSUMED.bf16_mel else mel
