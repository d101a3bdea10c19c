"""Flow matching and vocoder in plain PyTorch, f32 on the CPU, beside `stapes bench speak`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.bench.random_shapes import RandomShapes
from stapes.bench.speak import SpeakBench, flow_source, vocoder_source
from stapes.errors import RequestError
from stapes.models.vevo2.acoustic.flow_matching import initial_noise
from stapes.system import default_threads

F32 = NDArray[np.float32]

_E = "diff_estimator"
_B = "backbone"


def _require_torch(threads: int | None) -> Any:
    try:
        import torch
    except ImportError as error:
        raise RequestError(
            f"--versus torch needs torch ({error}): pip install 'stapes[bench]'."
        ) from None
    torch.set_num_threads(threads or default_threads())
    return torch


class TorchSpeak:
    """The stages as their authors wrote them: two passes a step, with torch's own attention."""

    name = "torch"

    def __init__(self, bench: SpeakBench) -> None:
        self._torch = torch = _require_torch(bench.threads)
        self._functional = torch.nn.functional
        self._bench = bench
        self._weights: dict[str, Any] = {}
        for source in (flow_source(bench), vocoder_source(bench)):
            self._weights |= self._tensors(source)

    def _tensors(self, source: RandomShapes) -> dict[str, Any]:
        from_numpy = self._torch.from_numpy
        return {name: from_numpy(source[name].to_f32()) for name in source.shapes}

    def mel(self) -> F32:
        """See `stapes.bench.speak.Peer`."""
        with self._torch.inference_mode():
            return np.asarray(self._mel().numpy())

    def samples(self) -> F32:
        """See `stapes.bench.speak.Peer`."""
        with self._torch.inference_mode():
            return np.asarray(self._samples().numpy())

    # -- flow matching -------------------------------------------------------------------------

    def _mel(self) -> Any:
        torch, bench, options = self._torch, self._bench, self._bench.options
        prompt, cond = torch.from_numpy(bench.prompt()), self._condition()
        x = torch.from_numpy(initial_noise(options.seed, bench.frames, bench.flow.mel_dim))
        nothing = torch.zeros_like(cond[: len(x)])
        for i in range(options.steps):
            time = (i + 0.5) / options.steps
            flow = self._estimate(torch.cat([prompt, x]), time, cond)[len(prompt) :]
            if options.cfg > 0:
                led = flow + options.cfg * (flow - self._estimate(x, time, nothing))
                share = options.rescale
                flow = share * (led * flow.std() / led.std()) + (1 - share) * led
            x = x + flow / options.steps
        return x

    def _condition(self) -> Any:
        w, f = self._weights, self._functional
        x = w["cond_emb.weight"][self._torch.from_numpy(self._bench.codes()).long()].T[None]
        for i in range(self._bench.flow.doublings):
            name = f"resampling_layers.{2 * i}"
            weight, bias = w[f"{name}.weight"], w[f"{name}.bias"]
            x = f.gelu(f.conv_transpose1d(x, weight, bias, stride=2, padding=1))
        return x[0].T

    def _estimate(self, mel: Any, time: float, cond: Any) -> Any:
        step = self._mlp(f"{_E}.diff_step_mlp", self._step(time))
        x = self._mlp(f"{_E}.mel_mlp", mel) + self._mlp(f"{_E}.cond_mlp", cond)
        angles = self._angles(len(x))
        for i in range(self._bench.flow.num_layers):
            p = f"{_E}.layers.{i}"
            x = x + self._attention(p, self._scaled(f"{p}.input_layernorm", x, step), angles)
            x = x + self._gated(p, self._scaled(f"{p}.post_attention_layernorm", x, step))
        return self._mlp(f"{_E}.mel_out_mlp", self._scaled(f"{_E}.norm", x, step))

    def _step(self, time: float) -> Any:
        torch, half = self._torch, self._bench.flow.hidden_size // 2
        angles = time * torch.exp(torch.arange(half) * -(math.log(10000.0) / (half - 1)))
        return torch.cat([angles.sin(), angles.cos()])

    def _angles(self, rows: int) -> Any:
        torch, head_dim = self._torch, self._bench.flow.head_dim
        rates = 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
        angles = torch.outer(torch.arange(rows), rates).repeat(1, 2)
        return angles.cos(), angles.sin()

    def _attention(self, prefix: str, x: Any, angles: Any) -> Any:
        torch, w, f = self._torch, self._weights, self._functional
        heads = self._bench.flow.num_heads
        q, k, v = (f.linear(x, w[f"{prefix}.self_attn.{p}_proj.weight"]) for p in "qkv")
        q, k, v = (y.view(len(x), heads, -1).transpose(0, 1) for y in (q, k, v))

        def rotated(y: Any) -> Any:
            first, second = y.chunk(2, dim=-1)
            return y * angles[0] + torch.cat([-second, first], dim=-1) * angles[1]

        mixed = f.scaled_dot_product_attention(rotated(q)[None], rotated(k)[None], v[None])[0]
        return f.linear(mixed.transpose(0, 1).flatten(1), w[f"{prefix}.self_attn.o_proj.weight"])

    def _gated(self, prefix: str, x: Any) -> Any:
        w, f = self._weights, self._functional
        gate, up = (f.linear(x, w[f"{prefix}.mlp.{p}_proj.weight"]) for p in ("gate", "up"))
        return f.linear(f.silu(gate) * up, w[f"{prefix}.mlp.down_proj.weight"])

    def _scaled(self, name: str, x: Any, step: Any) -> Any:
        normed = x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()
        return normed * self._affine(f"{name}.to_weight", step)

    # -- the vocoder ---------------------------------------------------------------------------

    def _samples(self) -> Any:
        mel = self._torch.from_numpy(self._bench.mel())
        x = self._norm(f"{_B}.norm", self._conv(f"{_B}.embed", mel))
        for i in range(self._bench.vocoder.num_layers):
            p = f"{_B}.convnext.{i}"
            h = self._norm(f"{p}.norm", self._conv(f"{p}.dwconv", x, x.shape[1]))
            h = self._affine(f"{p}.pwconv2", self._functional.gelu(self._affine(f"{p}.pwconv1", h)))
            x = x + self._weights[f"{p}.gamma"] * h
        out = self._affine("head.out", self._norm(f"{_B}.final_layer_norm", x))
        logarithm, phase = out.chunk(2, dim=-1)
        return self._inverse(self._torch.polar(logarithm.exp().clip(max=100.0), phase))

    def _inverse(self, spectrum: Any) -> Any:
        """As Vocos does it: overlapping sums by `fold`."""
        torch, f = self._torch, self._functional
        window, hop = self._weights["head.istft.window"], self._bench.vocoder.hop_size
        pieces = (torch.fft.irfft(spectrum, len(window), dim=-1) * window).T[None]
        weights = (window**2).expand(pieces.shape[2], -1).T[None]
        size, margin = (pieces.shape[2] - 1) * hop + len(window), (len(window) - hop) // 2

        def added(columns: Any) -> Any:
            folded = f.fold(columns, (1, size), (1, len(window)), stride=(1, hop))
            return folded[0, 0, 0, margin:-margin]

        return added(pieces) / added(weights)

    # -- shared --------------------------------------------------------------------------------

    def _affine(self, name: str, x: Any) -> Any:
        w = self._weights
        return self._functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def _mlp(self, name: str, x: Any) -> Any:
        return self._affine(f"{name}.2", self._functional.silu(self._affine(f"{name}.0", x)))

    def _norm(self, name: str, x: Any) -> Any:
        w, shape = self._weights, (x.shape[-1],)
        return self._functional.layer_norm(x, shape, w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)

    def _conv(self, name: str, x: Any, groups: int = 1) -> Any:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return self._functional.conv1d(x.T[None], weight, bias, padding=3, groups=groups)[0].T
