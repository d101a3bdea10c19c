"""Audio8-ASR's adapter equals torch's norms, projections and adaptive pooling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stapes
from models.audio8_checkpoint import Sizes, random_tensors, write_checkpoint

pytestmark = pytest.mark.parity


def test_the_adapter_is_that_of_torch(tmp_path: Path):
    import torch

    encoder = stapes.load(write_checkpoint(tmp_path), weights="f32", threads=1).encoder
    tensors = {n: torch.from_numpy(t) for n, t in random_tensors(Sizes()).items()}
    functional = torch.nn.functional
    values = torch.from_numpy(np.random.default_rng(2).standard_normal((117, 40)).astype("f4"))

    def norm(x: Any, name: str) -> Any:
        return functional.layer_norm(x, (40,), tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def affine(x: Any, name: str) -> Any:
        return functional.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    x = values
    for i in range(Sizes().tower_layers):
        block = f"audio_mlp_tower.layers.{i}"
        hidden = functional.gelu(affine(norm(x, f"{block}.norm"), f"{block}.fc1"))
        x = x + affine(hidden, f"{block}.fc2")
    x = norm(x, "audio_mlp_tower.final_norm").T.unsqueeze(0)
    pooled = functional.adaptive_avg_pool1d(x, 112).squeeze(0).T
    expected = affine(norm(pooled, "audio_projector.0"), "audio_projector.1").numpy()
    found = encoder.adapt(values.numpy(), 112)
    assert np.allclose(found, expected, atol=1e-4)
