"""The same tokenizers in torch: Whisper's encoder of transformers, Coco in plain functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.bench.random_shapes import RandomShapes
from stapes.bench.tokenize import NAMES, TokenizeBench, coco_source, whisper_source
from stapes.bench.versus import require_transformers

_EPS = 1e-6


class TorchTokenizers:
    """A peer of `stapes bench tokenize`, in f32."""

    name = "torch"

    def __init__(self, bench: TokenizeBench) -> None:
        self._torch, transformers = require_transformers(bench.threads)
        self._encoder = _whisper(self._torch, transformers, bench)
        self._cocos = [self._tensors(coco_source(s)) for s in (bench.content_style, bench.prosody)]
        self._mel = self._torch.from_numpy(bench.mel().T.copy()).unsqueeze(0)
        self._chroma = self._torch.from_numpy(bench.chroma())
        self._features = self._torch.from_numpy(bench.features())

    def whisper(self) -> NDArray[np.generic]:
        """See `Stages`."""
        with self._torch.inference_mode():
            found: NDArray[np.generic] = self._encoder(self._mel).last_hidden_state[0].numpy()
        return found

    def content_style(self) -> NDArray[np.generic]:
        """See `Stages`."""
        return self._codes(self._cocos[0], self._features)

    def prosody(self) -> NDArray[np.generic]:
        """See `Stages`."""
        return self._codes(self._cocos[1], None)

    def _tensors(self, source: RandomShapes) -> dict[str, Any]:
        return {name: self._torch.from_numpy(source[name].to_f32()) for name in source.shapes}

    def _codes(self, tensors: dict[str, Any], features: Any) -> NDArray[np.generic]:
        with self._torch.inference_mode():
            coco = _Coco(self._torch.nn.functional, tensors)
            found: NDArray[np.generic] = coco.codes(self._chroma, features).numpy()
        return found


def _whisper(torch: Any, transformers: Any, bench: TokenizeBench) -> Any:
    config = transformers.WhisperConfig(**vars(bench.whisper), attn_implementation="sdpa")
    with torch.device("meta"):
        encoder = transformers.models.whisper.modeling_whisper.WhisperEncoder(config)
    source = whisper_source(bench)
    state = {
        name.removeprefix(NAMES.prefix): torch.from_numpy(source[name].to_f32())
        for name in source.shapes
    }
    encoder.load_state_dict(state, assign=True)
    return encoder.eval()


class _Coco:
    """One tokenizer, as its reference computes it: channels first in convolutions."""

    def __init__(self, functional: Any, tensors: dict[str, Any]) -> None:
        self._f, self._t = functional, tensors

    def codes(self, chroma: Any, features: Any) -> Any:
        x = self._linear(chroma, "chromagram_input_layer")
        if features is not None:
            x = x + self._linear(features, "whisper_input_layer")
        x, layer = x.T.unsqueeze(0), 0
        while (name := f"downsample_layers.{layer}") + ".weight" in self._t:
            x, layer = self._f.gelu(self._conv(x, name, stride=2, padding=1)), layer + 2
        x = self._norm(self._conv(x, "encoder.0.embed", padding=3), "encoder.0.norm")
        x, i = x.transpose(1, 2), 0
        while (name := f"encoder.0.convnext.{i}") + ".gamma" in self._t:
            x, i = x + self._block(x, name), i + 1
        x = self._linear(self._norm(x, "encoder.0.final_layer_norm"), "encoder.1")
        return self._quantised(x[0])

    def _block(self, x: Any, name: str) -> Any:
        y = self._norm(
            self._conv(x, f"{name}.dwconv", padding=3, groups=x.shape[1]), f"{name}.norm"
        )
        y = self._linear(self._f.gelu(self._linear(y, f"{name}.pwconv1")), f"{name}.pwconv2")
        return (self._t[f"{name}.gamma"] * y).transpose(1, 2)

    def _quantised(self, x: Any) -> Any:
        name = "quantizer.quantizers.0"
        v, g = (self._t[f"{name}.in_project.weight_{part}"] for part in "vg")
        weight = (g * v / v.norm(dim=(1, 2), keepdim=True))[:, :, 0]
        rows = self._f.linear(x, weight, self._t[f"{name}.in_project.bias"])
        codebook = self._f.normalize(self._t[f"{name}.codebook.weight"])
        return (self._f.normalize(rows) @ codebook.T).argmax(1)

    def _linear(self, x: Any, name: str) -> Any:
        return self._f.linear(x, self._t[f"{name}.weight"], self._t[f"{name}.bias"])

    def _conv(self, x: Any, name: str, **how: int) -> Any:
        return self._f.conv1d(x, self._t[f"{name}.weight"], self._t[f"{name}.bias"], **how)

    def _norm(self, x: Any, name: str) -> Any:
        """Of [1, channels, n]: [1, n, channels]."""
        weight, bias = self._t[f"{name}.weight"], self._t[f"{name}.bias"]
        return self._f.layer_norm(x.transpose(1, 2), weight.shape, weight, bias, _EPS)
