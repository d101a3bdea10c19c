"""transformers' Qwen3 of the same sizes and weights, beside `stapes bench decoder`."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.bench.decoder import STEPS, DecoderBench
from stapes.bench.synthetic import SYNTHETIC, RandomTensors
from stapes.bench.versus import refresh_frequencies, require_transformers, text_config


class TransformersDecoder:
    """f32 on the CPU, its default attention and cache, the same ids."""

    name = "transformers"

    def __init__(self, bench: DecoderBench) -> None:
        self._torch, transformers = require_transformers(bench.threads)
        self._bench = bench
        self._new_cache = transformers.DynamicCache
        self._model = self._build(transformers)
        accepted = inspect.signature(self._model.forward).parameters
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"
        self._prompt = self._torch.from_numpy(bench.ids(1, bench.prefill_rows))
        self._first = self._torch.from_numpy(bench.ids(1, bench.batch).T.copy())
        self._cache = self._new_cache()
        history = self._torch.from_numpy(bench.ids(bench.batch, bench.positions))
        for start in range(0, bench.positions, 1024):
            self._run(history[:, start : start + 1024], self._cache)

    def _build(self, transformers: Any) -> Any:
        torch, config = self._torch, SYNTHETIC[self._bench.synthetic]
        values = text_config(config)
        values.pop("model_type")
        with torch.device("meta"):
            model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**values))
        model.to_empty(device="cpu")
        model.tie_weights()
        source = RandomTensors(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                ours = name.replace("model.", "model.language_model.", 1)
                parameter.copy_(torch.from_numpy(source[ours].to_f32()))
        refresh_frequencies(model)
        return model.eval()

    def _run(self, ids: Any, cache: Any) -> Any:
        """Greedy next ids [sequences, 1]."""
        with self._torch.inference_mode():
            out = self._model(input_ids=ids, logits_to_keep=1, **{self._cache_argument: cache})
        return out.logits[:, -1].argmax(-1, keepdim=True)

    def steps(self) -> NDArray[np.int64]:
        """`STEPS` decode steps of every sequence: the ids [sequences, STEPS]."""
        ids, made = self._first, []
        for _ in range(STEPS):
            ids = self._run(ids, self._cache)
            made.append(ids.numpy())
        self._cache.crop(-STEPS)
        return np.concatenate(made, axis=1)

    def prefill(self) -> int:
        """A prefill from nothing: the greedy next id."""
        return int(self._run(self._prompt, self._new_cache()))
