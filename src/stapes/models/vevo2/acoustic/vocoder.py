"""The vocoder: a mel -> samples, by ConvNeXt blocks over frames and an inverse Fourier transform.

A frame of the result depends on the frames nearby alone: 3 on either side for each convolution, and
those whose windows overlap. So a long mel is cut into blocks with as much around them, and the
samples are the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from stapes.errors import NumericError, RequestError
from stapes.graph import Executor, GraphBuilder, Plan, View
from stapes.graph.executor import Array
from stapes.models.vevo2.acoustic.config import VocoderSpec
from stapes.models.vevo2.acoustic.istft import inverse_stft
from stapes.models.vevo2.acoustic.vocoder_weights import TAPS, BlockWeights, Norm, VocoderWeights

F32 = NDArray[np.float32]

_EPS = 1e-6  # of LayerNorm (Vocos)
_LARGEST_MAGNITUDE = 100.0  # of a bin of the spectrum (Vocos)
BLOCK_FRAMES = 1500
"""Frames of a block, 30 s: bounds the working memory (40 KB a frame); what lies around a block, 190
frames at full size, is computed twice."""


def build_backbone(spec: VocoderSpec, weights: VocoderWeights) -> Plan:
    """Mel with its neighbours [frames, taps * channels] -> log magnitudes and phases, [n_fft + 2].

    Rows starts[r]..ends[r]-1 are one recording.
    """
    g = GraphBuilder("frames")
    mel = g.input("mel", "frames", TAPS * spec.input_channels)
    window = g.index_input("starts", "frames"), g.index_input("ends", "frames")
    x = _norm(g, g.linear(mel, weights.embed.matrix, weights.embed.bias), weights.norm)
    for block in weights.blocks:
        x = g.add(x, _residual(g, block, x, window))
    x = _norm(g, x, weights.final_norm)
    g.output("spectrum", g.linear(x, weights.head.matrix, weights.head.bias))
    return g.build()


def _residual(g: GraphBuilder, block: BlockWeights, x: View, window: tuple[View, View]) -> View:
    mixed = g.depthwise_conv(x, block.depthwise, block.depthwise_bias, *window)
    normed = _norm(g, mixed, block.norm)
    hidden = g.linear(normed, block.pwconv1.matrix, block.pwconv1.bias, "gelu")
    return g.linear(hidden, block.pwconv2.matrix, block.pwconv2.bias)


def _norm(g: GraphBuilder, x: View, norm: Norm) -> View:
    return g.layer_norm(x, norm.weight, norm.bias, _EPS)


class Vocoder:
    """Makes samples; holds no state between calls.

    Args:
        spec: sizes.
        weights: all weights, packed.
        make_executor: makes an executor of a plan.
    """

    def __init__(
        self,
        spec: VocoderSpec,
        weights: VocoderWeights,
        make_executor: Callable[[Plan], Executor],
    ) -> None:
        self.spec = spec
        self._window = weights.window.astype(np.float64)
        self._backbone = make_executor(build_backbone(spec, weights))

    @property
    def reach(self) -> int:
        """Frames on either side of a frame that its samples depend on."""
        overlap = -(-(self.spec.n_fft - self.spec.hop_size) // (2 * self.spec.hop_size))
        return (self.spec.num_layers + 1) * (TAPS // 2) + overlap

    def samples(self, mel: F32) -> F32:
        """A normalised mel [frames, input_channels] f32 -> samples [frames * hop_size] f32.

        Raises:
            RequestError: another shape. NumericError: a sample is not finite.
        """
        return np.concatenate(list(self.blocks(mel)))

    def blocks(self, mel: F32, block_frames: int = BLOCK_FRAMES) -> Iterator[F32]:
        """The samples a block at a time, so that the first can be heard before the last is made.

        The same mel gives the same samples, whatever the size of blocks.
        """
        if mel.ndim != 2 or mel.shape[0] < 1 or mel.shape[1] != self.spec.input_channels:
            channels = self.spec.input_channels
            raise RequestError(f"The vocoder reads a mel [frames, {channels}], not {mel.shape}.")
        if block_frames < 1:
            raise RequestError(f"A block has 1 frame or more, not {block_frames}.")
        padded = np.pad(mel.astype(np.float32, copy=False), [(TAPS // 2, TAPS // 2), (0, 0)])
        for first in range(0, len(mel), block_frames):
            last = min(first + block_frames, len(mel))
            begin, end = max(first - self.reach, 0), min(last + self.reach, len(mel))
            samples = self._stretch(padded[begin : end + TAPS - 1])
            hop = self.spec.hop_size
            yield samples[(first - begin) * hop : (last - begin) * hop]

    def _stretch(self, padded: F32) -> F32:
        """Samples of neighbouring frames, given with 3 more on either side."""
        windows = np.lib.stride_tricks.sliding_window_view(padded, TAPS, axis=0)
        mel = windows.transpose(0, 2, 1).reshape(windows.shape[0], -1)
        starts, ends = np.zeros(len(mel), np.int32), np.full(len(mel), len(mel), np.int32)
        inputs: dict[str, Array] = {"mel": mel, "starts": starts, "ends": ends}
        spectrum = self._backbone.run(inputs)["spectrum"].astype(np.float64)
        if not np.isfinite(spectrum).all():
            raise NumericError("The vocoder computed a value that is not finite.")
        logarithm, phase = np.split(spectrum, 2, axis=1)
        magnitude = np.exp(np.minimum(logarithm, np.log(_LARGEST_MAGNITUDE)))
        waves = magnitude * np.exp(1j * phase)
        return inverse_stft(waves, self._window, self.spec.hop_size).astype(np.float32)
