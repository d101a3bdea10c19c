"""Tiny random Qwen3-ASR models of transformers, and the same models loaded by stapes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stapes
from checkpoints import (
    F32,
    Sizes,
    Tensors,
    hf_config,
    random_values,
    write_original,
)
from stapes.decoder import Decoder, GenerateOptions, GenerateResult, Prompt, generate
from stapes.decoder.prompt import check_prompt
from stapes.models.qwen3_asr import Qwen3Asr
from text.bpe_folder import write_new_layout

torch = pytest.importorskip("torch")
pytest.importorskip("transformers.models.qwen3_asr")

from transformers import Qwen3ASRConfig, Qwen3ASRForConditionalGeneration  # noqa: E402

NEW_TOKENS = 64

torch.set_num_threads(1)  # matrices this small only suffer from more, badly so on a busy machine


class Oracle:
    """A model of transformers, in f32 on the CPU."""

    def __init__(self, model: Any) -> None:
        self.model = model.float().eval()
        self.model.generation_config.eos_token_id = None

    def _features(self, mel: F32) -> dict[str, Any]:
        """mel [frames, bins] as the batch of one that the model takes, padded to whole chunks."""
        frames, bins = mel.shape
        padded = np.zeros((1, bins, -(-frames // 100) * 100), np.float32)
        padded[0, :, :frames] = mel.T
        mask = (np.arange(padded.shape[2]) < frames).astype(np.int64)[None]
        return {
            "input_features": torch.from_numpy(padded),
            "input_features_mask": torch.from_numpy(mask),
        }

    @torch.no_grad()
    def encode(self, mel: F32) -> F32:
        features = self._features(mel)
        return self.model.model.get_audio_features(**features).pooler_output.numpy()

    @torch.no_grad()
    def logits(self, prompt: Prompt, mel: F32) -> F32:
        ids = torch.tensor([list(prompt.token_ids)])
        return self.model(input_ids=ids, **self._features(mel)).logits[0].numpy()

    @torch.no_grad()
    def greedy(self, prompt: Prompt, mel: F32, new_tokens: int = NEW_TOKENS) -> list[int]:
        ids = torch.tensor([list(prompt.token_ids)])
        out = self.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),  # else <|im_end|> would be masked as padding
            max_new_tokens=new_tokens,
            do_sample=False,
            **self._features(mel),
        )
        return out[0, ids.shape[1] :].tolist()


def random_oracle(sizes: Sizes, seed: int) -> Oracle:
    """A model of transformers with our random weights."""
    model = Qwen3ASRForConditionalGeneration(Qwen3ASRConfig(**hf_config(sizes)))
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(random_values(rng, name, tuple(parameter.shape))))
    return Oracle(model)


def saved_oracle(folder: Path) -> Oracle:
    """A saved model, its weights widened to f32."""
    loaded = Qwen3ASRForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return Oracle(loaded)


def save_hf(oracle: Oracle, folder: Path) -> Path:
    """The folder as transformers writes it, with a tokenizer beside it."""
    oracle.model.save_pretrained(folder)
    return write_new_layout(folder)


def saved_tensors(folder: Path) -> Tensors:
    from safetensors.torch import load_file

    loaded = load_file(folder / "model.safetensors")
    return {name: tensor.float().numpy() for name, tensor in loaded.items()}


def rewrite_original(hf_folder: Path, folder: Path, dtype: str = "F32") -> Path:
    """A folder of transformers in the layout of the first publication."""
    config = json.loads((hf_folder / "config.json").read_text())
    return write_original(folder, config, saved_tensors(hf_folder), dtype)


class Ours:
    """A loaded checkpoint, run stage by stage, with no id that ends an answer."""

    def __init__(self, folder: Path, weights: str = "f32", kv: str = "f32") -> None:
        model = stapes.load(folder, weights=weights, kv=kv, threads=1)
        assert isinstance(model, Qwen3Asr)
        self.model = model
        self.decoder = without_eos(model.decoder)

    def encode(self, mel: F32) -> F32:
        return self.model.encoder.encode(mel)

    def prompt(self, embeddings: F32, context: str = "") -> Prompt:
        return self.model.prompts.build(embeddings, context)

    def logits(self, prompt: Prompt) -> F32:
        """Logits at every position of a prompt."""
        return prompt_logits(self.decoder, prompt)

    def greedy(self, prompt: Prompt, new_tokens: int = NEW_TOKENS) -> list[int]:
        return list(self.generate(prompt, new_tokens).token_ids)

    def generate(self, prompt: Prompt, new_tokens: int) -> GenerateResult:
        return generate(self.decoder.new_session(), prompt, GenerateOptions(new_tokens))


def prompt_logits(decoder: Decoder, prompt: Prompt) -> F32:
    checked = check_prompt(prompt, 1, decoder.spec)
    rows = np.arange(len(prompt), dtype=np.int32)
    logits: NDArray[Any] = decoder.new_session().prefill(checked, rows, "logits")
    return logits


def without_eos(decoder: Decoder) -> Decoder:
    spec = dataclasses.replace(decoder.spec, eos_token_ids=frozenset())
    return Decoder(spec, decoder.weights, decoder._make_executor, decoder.kv)


def relative_error(found: F32, expected: F32) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())
