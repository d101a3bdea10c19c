"""Tiny random decoders of transformers, and the same decoders saved and loaded by stapes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from decoder.tiny import engine, native
from stapes.decoder import Decoder, DecoderSpec, Prompt, expected_tensors, read_weights
from stapes.tensors import check_tensors, open_safetensors
from stapes.weights import CheckpointReader, MatrixPacker

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

F32 = NDArray[np.float32]
Tensors = dict[str, F32]

torch.set_num_threads(1)  # matrices this small only suffer from more


def f16_attention(module: Any, q: Any, k: Any, v: Any, mask: Any, **kwargs: Any) -> Any:
    """Attention of transformers, from keys and values that were kept as f16."""
    attend = transformers.AttentionInterface()["sdpa"]
    return attend(module, q, k.half().float(), v.half().float(), mask, **kwargs)


transformers.AttentionInterface.register("f16_cache", f16_attention)
transformers.AttentionMaskInterface.register(
    "f16_cache", transformers.AttentionMaskInterface()["sdpa"]
)


class Oracle:
    """A decoder of transformers with random weights, in f32 on the CPU.

    Qwen2's classes always have biases and Qwen3's always norms of heads: a decoder with both is a
    Qwen3 whose o_proj adds zeros, one with neither a Qwen2 whose biases are zeros.
    """

    def __init__(self, spec: DecoderSpec, seed: int) -> None:
        self.spec = spec
        kind = "Qwen3" if spec.qk_norm else "Qwen2"
        config = getattr(transformers, f"{kind}Config")(**config_values(spec))
        self.model = getattr(transformers, f"{kind}ForCausalLM")(config).float().eval()
        if spec.head_size != spec.vocab_size:
            self.model.lm_head = torch.nn.Linear(spec.hidden_size, spec.head_size, bias=False)
        self.model.generation_config.eos_token_id = None
        self.model.model.embed_tokens.register_forward_pre_hook(
            lambda module, args: (args[0] % spec.vocab_size,)
        )
        rng = np.random.default_rng(seed)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                values = random_values(spec, rng, name, tuple(parameter.shape))
                parameter.copy_(torch.from_numpy(values))

    def embeddings(self, prompt: Prompt) -> Any:
        """[1, n, hidden]: the looked-up rows, injected ones in their places."""
        rows = self.model.model.embed_tokens(torch.tensor([list(prompt.token_ids)]))
        if prompt.injection is not None:
            rows[0, list(prompt.injection.positions)] = torch.from_numpy(prompt.injection.values)
        return rows

    @torch.no_grad()
    def logits(self, prompt: Prompt, kv: str = "f32") -> F32:
        """Logits at every position of a prompt, keys and values kept as f32 or f16."""
        self.model.set_attn_implementation({"f32": "sdpa", "f16": "f16_cache"}[kv])
        logits: F32 = self.model(inputs_embeds=self.embeddings(prompt)).logits[0].numpy()
        return logits

    @torch.no_grad()
    def greedy(self, prompt: Prompt, new_tokens: int) -> tuple[list[int], float]:
        """Greedy ids, and the least margin by which one of them won.

        Those that a wide head has beyond the vocabulary are read as id % vocab.
        """
        self.model.set_attn_implementation("sdpa")
        rows = self.embeddings(prompt)
        found = self.model.generate(
            inputs_embeds=rows,
            attention_mask=torch.ones(rows.shape[:2], dtype=torch.int64),
            max_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
        )
        best = torch.cat(found.scores).topk(2).values
        return found.sequences[0].tolist(), float((best[:, 0] - best[:, 1]).min())

    @torch.no_grad()
    def mrope_logits(self, prompt: Prompt, axes: NDArray[np.int64]) -> F32:
        """Logits of the vision model with the same decoder, at positions [3, n] in time and space.

        Qwen2.5-VL gives each axis a range of RoPE's rates; in Qwen3-VL they take turns.
        """
        kind = "Qwen3VL" if self.spec.qk_norm else "Qwen2_5_VL"
        values = config_values(self.spec)
        values["rope_parameters"]["mrope_section"] = mrope_sections(self.spec.head_dim)
        config = getattr(transformers, f"{kind}TextConfig")(**values)
        model = getattr(transformers, f"{kind}TextModel")(config).float().eval()
        model.load_state_dict(self.model.model.state_dict())
        positions = torch.from_numpy(axes)[:, None]
        found = model(inputs_embeds=self.embeddings(prompt), position_ids=positions)
        logits: F32 = self.model.lm_head(found.last_hidden_state)[0].numpy()
        return logits

    def save(self, path: Path) -> Path:
        """The checkpoint that the spec describes, as a safetensors file."""
        tensors = {name: value.numpy() for name, value in self.model.state_dict().items()}
        if self.spec.tie_word_embeddings:
            del tensors["lm_head.weight"]
        tensors = {n: v for n, v in tensors.items() if not is_left_out(self.spec, n)}
        if self.spec.packed_qkv:
            tensors = with_packed_qkv(tensors)
        save_file({renamed(self.spec, n): v for n, v in tensors.items()}, path)
        return path


def config_values(spec: DecoderSpec) -> dict[str, Any]:
    """The configuration of transformers for a spec; heads are of any size in Qwen2 too."""
    names = ("max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "attention_bias")
    return {
        **spec.sizes(),
        **{name: getattr(spec, name) for name in names},
        "rope_parameters": {"rope_theta": spec.rope_theta, "rope_type": "default"},
        "hidden_act": "silu",
    }


def mrope_sections(head_dim: int) -> list[int]:
    """How many of RoPE's rates belong to time, height and width."""
    third = head_dim // 6
    return [head_dim // 2 - 2 * third, third, third]


def random_values(
    spec: DecoderSpec, rng: np.random.Generator, name: str, shape: tuple[int, ...]
) -> F32:
    """Weights with which ids change along the answer and with the prompt."""
    if is_left_out(spec, name):
        return np.zeros(shape, np.float32)
    if name.endswith("bias"):
        values = rng.normal(0, 0.5, shape)
    elif len(shape) == 2:
        scale = 1.6 / math.sqrt(shape[1]) if ".layers." in name else 0.1
        values = rng.normal(0, scale, shape)
    else:
        low, high = (1, 2) if name.endswith(("q_norm.weight", "k_norm.weight")) else (0.5, 1.5)
        values = rng.uniform(low, high, shape)
    return values.astype(np.float32)


def is_left_out(spec: DecoderSpec, name: str) -> bool:
    """Whether this parameter of transformers is one that the decoder does not have."""
    return name.endswith(".bias") and (not spec.attention_bias or "o_proj" in name)


def with_packed_qkv(tensors: Mapping[str, F32]) -> Tensors:
    """The same tensors, q_proj, k_proj and v_proj stacked into qkv_proj."""
    separate = re.compile(r"(.*self_attn\.)([qkv])_proj(\..*)")
    packed: Tensors = {}
    for name, values in tensors.items():
        match = separate.fullmatch(name)
        if match is None:
            packed[name] = values
        elif match[2] == "q":
            parts = [tensors[f"{match[1]}{x}_proj{match[3]}"] for x in "qkv"]
            packed[f"{match[1]}qkv_proj{match[3]}"] = np.concatenate(parts)
    return packed


def renamed(spec: DecoderSpec, name: str) -> str:
    """A parameter's name in the checkpoint."""
    names = spec.names
    outer = {
        "model.embed_tokens.weight": names.token_embedding,
        "model.norm.weight": names.final_norm,
        "lm_head.weight": names.lm_head,
    }
    return outer.get(name) or name.replace("model.layers", names.layer_prefix, 1)


def load(path: Path, spec: DecoderSpec, kv: Any = "f32") -> Decoder:
    """A saved checkpoint with f32 weights, all of whose tensors are the spec's."""
    with open_safetensors(path) as store:
        check_tensors(store, expected_tensors(spec))
        weights = read_weights(CheckpointReader(store, MatrixPacker(engine(), "f32")), spec)
    return Decoder(spec, weights, native(), kv)
