"""transformers' Qwen3 or Qwen2 of the same sizes and weights, beside `stapes bench decoder`."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.bench.decoder import STEPS, DecoderBench
from stapes.bench.synthetic import SAMPLING, decoder_spec, synthetic_tensors
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
        self._history = self._torch.from_numpy(bench.ids(bench.batch, bench.positions))
        for start in range(0, bench.positions, 1024):
            self._run(self._history[:, start : start + 1024], self._cache)

    def _build(self, transformers: Any) -> Any:
        torch, spec = self._torch, decoder_spec(self._bench.synthetic)
        values = text_config(spec)
        values.pop("model_type")
        with torch.device("meta"):
            if spec.qk_norm:
                model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**values))
            else:
                model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**values))
        model.to_empty(device="cpu")
        model.tie_weights()
        source = synthetic_tensors(self._bench.synthetic)
        top = spec.names.layer_prefix.removesuffix("layers")
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                ours = name.replace("model.", top, 1)
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

    def sampled(self) -> NDArray[np.int64]:
        """`STEPS` ids drawn behind each sequence's history and one more id."""
        options = SAMPLING[self._bench.synthetic]
        given = self._torch.cat([self._history, self._first], dim=1)
        with self._torch.inference_mode():
            out = self._model.generate(
                input_ids=given,
                attention_mask=self._torch.ones_like(given),
                max_new_tokens=STEPS,
                do_sample=True,
                temperature=options.temperature,
                top_k=options.top_k,
                top_p=options.top_p,
                repetition_penalty=options.repetition_penalty,
                eos_token_id=None,
                pad_token_id=0,
                **{self._cache_argument: self._cache},
            )
        self._cache.crop(-STEPS)  # the last id of `given`, and all drawn ones but the last
        ids: NDArray[np.int64] = out[:, given.shape[1] :].numpy()
        return ids
