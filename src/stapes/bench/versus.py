"""What a benchmark is compared with: the one place that imports it, when it is there."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.bench.asr import AsrBench, prompt_ids
from stapes.bench.synthetic import SYNTHETIC, RandomTensors
from stapes.decoder import DecoderSpec
from stapes.errors import RequestError
from stapes.models.qwen3_asr.config import Qwen3AsrConfig
from stapes.models.qwen3_asr.encoder import audio_tokens
from stapes.system import default_threads


def require_transformers(threads: int | None) -> tuple[Any, Any]:
    """The modules torch, set to so many threads, and transformers."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise RequestError(
            f"--versus transformers needs torch and transformers >= 5.13 ({error}): "
            "pip install 'stapes[parity]'."
        ) from None
    torch.set_num_threads(threads or default_threads())
    return torch, transformers


def refresh_frequencies(model: Any) -> None:
    """Compute RoPE's tables, which are not stored, in a model that was made without memory."""
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            fresh = type(module)(module.config)
            module.inv_freq, module.original_inv_freq = fresh.inv_freq, fresh.inv_freq


def text_config(decoder: DecoderSpec) -> dict[str, Any]:
    """A decoder's sizes as transformers' Qwen3 names them; Qwen2's have the same names."""
    return {
        "model_type": "qwen3",
        "hidden_size": decoder.hidden_size,
        "num_hidden_layers": decoder.num_hidden_layers,
        "num_attention_heads": decoder.num_attention_heads,
        "num_key_value_heads": decoder.num_key_value_heads,
        "head_dim": decoder.head_dim,
        "intermediate_size": decoder.intermediate_size,
        "vocab_size": decoder.vocab_size,
        "max_position_embeddings": decoder.max_position_embeddings,
        "rms_norm_eps": decoder.rms_norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": decoder.rope_theta},
        "tie_word_embeddings": decoder.tie_word_embeddings,
    }


class TransformersAsr:
    """The same model and weights in transformers: f32 on the CPU, its default attention."""

    name = "transformers"

    def __init__(self, bench: AsrBench) -> None:
        self._torch, transformers = require_transformers(bench.runtime.threads)
        self._bench = bench
        self._config = SYNTHETIC[bench.synthetic]
        extractor: Any = transformers.Qwen3ASRFeatureExtractor
        self._features = extractor(feature_size=self._config.encoder.num_mel_bins)
        self._model = self._build(transformers)

    def _build(self, transformers: Any) -> Any:
        torch, config = self._torch, _transformers_config(transformers, self._config)
        with torch.device("meta"):
            model = transformers.Qwen3ASRForConditionalGeneration(config)
        model.to_empty(device="cpu")
        model.tie_weights()
        source = RandomTensors(self._config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.from_numpy(source[name].to_f32()))
            for module in model.modules():  # tables that are computed, not stored
                if hasattr(module, "compute_default_singular_positional_embedding"):
                    module.positional_embedding = (
                        module.compute_default_singular_positional_embedding()
                    )
        refresh_frequencies(model)
        return model.eval()

    def run(self, samples: NDArray[np.float32]) -> float:
        """Seconds from samples to the last token."""
        torch = self._torch
        started = time.perf_counter()
        features = self._features(
            samples, sampling_rate=16000, padding=True, return_attention_mask=True
        )
        mask = features["attention_mask"]
        ids = prompt_ids(audio_tokens(int(mask.sum())), self._config.audio_token_id)
        with torch.inference_mode():
            out = self._model.generate(
                input_ids=torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                input_features=features["input_features"],
                input_features_mask=mask,
                max_new_tokens=self._bench.tokens,
                min_new_tokens=self._bench.tokens,
                do_sample=False,
            )
        seconds = time.perf_counter() - started
        if out.shape[1] != len(ids) + self._bench.tokens:
            raise RuntimeError(f"transformers gave {out.shape[1] - len(ids)} tokens")
        return seconds


def _transformers_config(transformers: Any, config: Qwen3AsrConfig) -> Any:
    return transformers.Qwen3ASRConfig(
        audio_config={"model_type": "qwen3_asr_encoder", "n_window": 50, **vars(config.encoder)},
        text_config=text_config(config.decoder),
        audio_token_id=config.audio_token_id,
    )
