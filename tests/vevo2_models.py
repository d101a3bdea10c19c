"""Tiny random checkpoints in the published layout of Vevo2's autoregressive stage."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from text.bpe_folder import NAMES, added, tokenizer_config, tokenizer_json, trained, write_json
from text_models import Sizes, Tensors, random_tensors, write_folder

SENTINELS = (
    "<|content_style_start|>",
    "<|content_style_end|>",
    "<|prosody_start|>",
    "<|prosody_end|>",
)
#: Behind the base vocabulary, in no order that a reader could guess.
ADDED = tuple(
    sorted(
        [
            *(f"<|content_style_{i}|>" for i in range(16384)),
            *(f"<|prosody_{i}|>" for i in range(512)),
            *SENTINELS,
        ],
        key=lambda name: (len(name) % 3, name),
    )
)
SIZES = Sizes(
    "qwen2",
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=48,
    vocab_size=len(trained()[0]) + len(NAMES) + len(ADDED),
    max_position_embeddings=4096,
)
GENERATION = {
    "bos_token_id": 505,
    "do_sample": True,
    "eos_token_id": [502, 500],
    "pad_token_id": 500,
    "repetition_penalty": 1.1,
    "temperature": 0.7,
    "top_k": 20,
    "top_p": 0.8,
}
AMPHION = """{
  // what the publisher's code reads
  model_type: 'AutoRegressive',
  "preprocess": {"sample_rate": 24000, "hop_size": 480,},
}
"""


@cache
def ids() -> dict[str, int]:
    """Id by name of every added token."""
    first = len(trained()[0])
    return {name: first + i for i, name in enumerate((*NAMES, *ADDED))}


def vevo2_tokenizer() -> dict[str, Any]:
    plain = tokenizer_json()
    return {**plain, "added_tokens": [added(name, id=i) for name, i in ids().items()]}


def vevo2_tensors(seed: int = 0, sizes: Sizes = SIZES) -> Tensors:
    """Weights with which the likeliest ids are content-style codes, now and then an end."""
    tensors = random_tensors(sizes, seed)
    embedding = tensors["model.embed_tokens.weight"]
    codes = [i for name, i in ids().items() if name.startswith("<|content_style_")]
    others = np.setdiff1d(np.arange(sizes.vocab_size), codes)
    embedding[others] *= 0.4
    embedding *= np.float32(6)  # spreads the logits, so that 25 of them are no even choice
    return tensors


def write_ar(
    folder: Path, tensors: Tensors | None = None, sizes: Sizes = SIZES, **config: Any
) -> Path:
    """The folder of the AR, with all files that the published one has, leftovers included."""
    made = vevo2_tensors(sizes=sizes) if tensors is None else tensors
    write_folder(folder, dataclasses.replace(sizes), made, **config)
    write_json(folder / "tokenizer.json", vevo2_tokenizer())
    decoder = {str(i): added(name) for name, i in ids().items()}
    write_json(
        folder / "tokenizer_config.json", {**tokenizer_config(), "added_tokens_decoder": decoder}
    )
    write_json(folder / "added_tokens.json", ids())
    write_json(folder / "special_tokens_map.json", {"eos_token": "<|im_end|>"})
    write_json(folder / "generation_config.json", GENERATION)
    (folder / "amphion_config.json").write_text(AMPHION, "utf-8")
    for leftover in ("optimizer.pt", "rng_state_0.pth", "training_args.bin"):
        (folder / leftover).write_bytes(b"no tensors")
    return folder


def write_root(root: Path) -> Path:
    """A published folder of which only the AR is complete."""
    write_ar(root / "contentstyle_modeling" / "posttrained")
    return root
