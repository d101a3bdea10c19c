"""The Coco tokenizers' network: features at 50 Hz -> codes at 12.5 or 6.25 Hz.

Between its plans the windows of the convolutions over time are laid out side by side; what follows
is a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stapes.errors import NumericError
from stapes.graph import Array, Executor, GraphBuilder, Plan, View
from stapes.models.vevo2.tokenizers.coco_weights import (
    DOWN_TAPS,
    EMBED_TAPS,
    CocoSpec,
    CocoWeights,
    ConvNextWeights,
)
from stapes.models.vevo2.tokenizers.unfold import unfolded
from stapes.models.vevo2.voice import F32

_EPS = 1e-6  # of all of the backbone's norms
_INPUT_ROWS = 4096  # of one run of the input layers: bounds their working memory


def build_input(spec: CocoSpec, weights: CocoWeights) -> Plan:
    """Chroma [frames, 24] and, if it reads them, Whisper features -> rows [frames, hidden_size]."""
    g = GraphBuilder("frames")
    chroma = g.input("chroma", "frames", spec.chromagram_dim)
    x = g.linear(chroma, weights.chroma.matrix, weights.chroma.bias)
    if weights.whisper is not None:
        whisper = g.input("whisper", "frames", spec.whisper_dim)
        x = g.add(g.linear(whisper, weights.whisper.matrix, weights.whisper.bias), x)
    g.output("rows", x)
    return g.build()


def build_down(spec: CocoSpec, weights: CocoWeights, i: int) -> Plan:
    """Windows [codes, 3 * hidden_size] -> rows [codes, hidden_size]: one halving of the rate."""
    g = GraphBuilder("codes")
    windows = g.input("windows", "codes", DOWN_TAPS * spec.hidden_size)
    conv = weights.down[i]
    g.output("rows", g.linear(windows, conv.matrix, conv.bias, "gelu"))
    return g.build()


def build_encoder(spec: CocoSpec, weights: CocoWeights) -> Plan:
    """Windows [codes, 7 * hidden_size], starts and ends [codes] -> codes, and what they stand for.

    Outputs: `codes` i32 [codes], the nearest direction of the codebook; `projected` f32
    [codes, codebook_dim], what was looked up. The codebook's rows have length 1, so the largest
    product is the largest cosine, whatever the length of the row that is looked up.
    """
    g = GraphBuilder("codes")
    windows = g.input("windows", "codes", EMBED_TAPS * spec.hidden_size)
    starts, ends = g.index_input("starts", "codes"), g.index_input("ends", "codes")
    x = g.linear(windows, weights.embed.matrix, weights.embed.bias)
    x = weights.norm.apply(g, x, _EPS)
    for block in weights.blocks:
        x = g.add(x, _convnext(g, block, x, starts, ends))
    x = weights.final_norm.apply(g, x, _EPS)
    x = g.linear(x, weights.out.matrix, weights.out.bias)
    projected = g.linear(x, weights.in_project.matrix, weights.in_project.bias)
    g.output("projected", projected)
    g.output("codes", g.argmax(g.linear(projected, weights.codebook)))
    return g.build()


def _convnext(g: GraphBuilder, block: ConvNextWeights, x: View, starts: View, ends: View) -> View:
    mixed = g.depthwise_conv(x, block.depthwise, block.depthwise_bias, starts, ends)
    normed = block.norm.apply(g, mixed, _EPS)
    hidden = g.linear(normed, block.pwconv1.matrix, block.pwconv1.bias, "gelu")
    return g.linear(hidden, block.pwconv2.matrix, block.pwconv2.bias)


class CocoEncoder:
    """Encodes whole recordings; holds no state between calls."""

    def __init__(
        self,
        spec: CocoSpec,
        weights: CocoWeights,
        make_executor: Callable[[Plan], Executor],
    ) -> None:
        self.spec = spec
        self._input = make_executor(build_input(spec, weights))
        self._down = [
            make_executor(build_down(spec, weights, i)) for i in range(spec.downsample_layers)
        ]
        self._encoder = make_executor(build_encoder(spec, weights))

    def codes(self, chroma: F32, whisper: F32 | None = None) -> NDArray[np.int32]:
        """Codes of a recording.

        Args:
            chroma: f32 [frames, chromagram_dim], frames > 0.
            whisper: f32 [frames, whisper_dim], where the tokenizer reads them.

        Returns:
            i32 [spec.codes(frames)], each from 0 to codebook_size - 1.

        Raises:
            NumericError: the network computed values that are not finite.
        """
        codes, projected = self.encode(chroma, whisper)
        if not np.isfinite(projected).all() or (codes < 0).any():
            raise NumericError("The tokenizer computed values that are not finite.")
        return codes

    def encode(self, chroma: F32, whisper: F32 | None = None) -> tuple[NDArray[np.int32], F32]:
        """As `codes`, and f32 [codes, codebook_dim], the rows that were looked up."""
        rows = self._features(chroma, whisper)
        for down in self._down:
            rows = _f32(down.run({"windows": unfolded(rows, DOWN_TAPS, stride=2)})["rows"])
        count = rows.shape[0]
        found = self._encoder.run(
            {
                "windows": unfolded(rows, EMBED_TAPS),
                "starts": np.zeros(count, np.int32),
                "ends": np.full(count, count, np.int32),
            }
        )
        return found["codes"].astype(np.int32, copy=False), _f32(found["projected"])

    def _features(self, chroma: F32, whisper: F32 | None) -> F32:
        """The input layers, some frames at a time: f32 [frames, hidden_size]."""
        inputs: dict[str, Array] = {"chroma": chroma}
        if whisper is not None:
            inputs["whisper"] = whisper
        parts = [
            {name: rows[i : i + _INPUT_ROWS] for name, rows in inputs.items()}
            for i in range(0, chroma.shape[0], _INPUT_ROWS)
        ]
        return np.concatenate([_f32(self._input.run(part)["rows"]) for part in parts])


def _f32(array: Array) -> F32:
    return array.astype(np.float32, copy=False)
