"""Vevo2's tokenizers once more, in plain torch, from the formulas of its reference.

Nothing of the package is used. Tensors are given under the checkpoint's names.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

Tensors = dict[str, torch.Tensor]


def convolved(x: Any, tensors: Tensors, name: str, **how: Any) -> Any:
    return functional.conv1d(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"], **how)


def affine(x: Any, tensors: Tensors, name: str) -> Any:
    return functional.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])


def norm(x: Any, tensors: Tensors, name: str) -> Any:
    weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    return functional.layer_norm(x, weight.shape, weight, bias, 1e-6)


def coco(tensors: Tensors, chroma: Any, whisper: Any = None) -> tuple[Any, Any]:
    """Chroma [T, 24] and Whisper features [T, d] -> codes [n], and what is looked up [n, 8]."""
    x = affine(chroma, tensors, "chromagram_input_layer")
    if whisper is not None:
        x = affine(whisper, tensors, "whisper_input_layer") + x
    x = x.T.unsqueeze(0)
    layer = 0
    while f"downsample_layers.{layer}.weight" in tensors:
        x = functional.gelu(
            convolved(x, tensors, f"downsample_layers.{layer}", stride=2, padding=1)
        )
        layer += 2
    x = backbone(tensors, x)
    x = affine(x.transpose(1, 2), tensors, "encoder.1")
    return quantised(tensors, x.transpose(1, 2))


def backbone(tensors: Tensors, x: Any) -> Any:
    """[1, hidden, n] -> [1, dim, n]."""
    x = convolved(x, tensors, "encoder.0.embed", padding=3)
    x = norm(x.transpose(1, 2), tensors, "encoder.0.norm").transpose(1, 2)
    i = 0
    while f"encoder.0.convnext.{i}.gamma" in tensors:
        block = f"encoder.0.convnext.{i}"
        y = convolved(x, tensors, f"{block}.dwconv", padding=3, groups=x.shape[1])
        y = norm(y.transpose(1, 2), tensors, f"{block}.norm")
        y = affine(
            functional.gelu(affine(y, tensors, f"{block}.pwconv1")), tensors, f"{block}.pwconv2"
        )
        x = x + (tensors[f"{block}.gamma"] * y).transpose(1, 2)
        i += 1
    return norm(x.transpose(1, 2), tensors, "encoder.0.final_layer_norm").transpose(1, 2)


def quantised(tensors: Tensors, x: Any) -> tuple[Any, Any]:
    """[1, hidden, n] -> codes [n] by distance on the unit sphere, and rows [n, 8]."""
    name = "quantizer.quantizers.0"
    conv = torch.nn.Conv1d(x.shape[1], tensors[f"{name}.in_project.bias"].shape[0], 1)
    conv = torch.nn.utils.weight_norm(conv)
    conv.weight_g.data = tensors[f"{name}.in_project.weight_g"]
    conv.weight_v.data = tensors[f"{name}.in_project.weight_v"]
    conv.bias.data = tensors[f"{name}.in_project.bias"]
    rows = conv(x)[0].T
    found = functional.normalize(rows)
    codebook = functional.normalize(tensors[f"{name}.codebook.weight"])
    distance = (
        found.pow(2).sum(1, keepdim=True)
        - 2 * found @ codebook.T
        + codebook.pow(2).sum(1, keepdim=True).T
    )
    return (-distance).max(1)[1], rows
