"""Writes folders with a small, really trained byte-level BPE, in every layout."""

# ruff: noqa: RUF001

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from stapes.text.tokenizer_files import byte_level_spec

CORPUS = [
    "The quick brown fox doesn't jump over the lazy dogs; they're asleep. No, no, no!",
    "Größe über Straße, naïve café, Ελληνικά, русский язык, مرحبا بالعالم, हिन्दी में",
    "你好，世界。今天天气很好。こんにちは世界。カタカナ。안녕하세요 세계. สวัสดีชาวโลก",
    "system user assistant language English asr_text im_end 0123456789 \n\n\t emoji 🎙😀👍🏽",
] * 3

# Ids behind the vocabulary; two are not flagged special, as in real models.
NAMES = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio_pad|>",
    "<asr_text>",
    "<timestamp>",
)
PLAIN_NAMES = ("<asr_text>", "<timestamp>")


@cache
def trained(size: int = 500) -> tuple[dict[str, int], tuple[tuple[str, str], ...]]:
    """Vocabulary and merges of `size` pieces."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], tuple(tuple(pair) for pair in model["merges"])


def control_ids() -> dict[str, int]:
    return {name: len(trained()[0]) + i for i, name in enumerate(NAMES)}


def added(name: str, **more: Any) -> dict[str, Any]:
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {"content": name, **flags, "special": name not in PLAIN_NAMES, **more}


def tokenizer_config() -> dict[str, Any]:
    return {
        "added_tokens_decoder": {str(i): added(name) for name, i in control_ids().items()},
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "tokenizer_class": "Qwen2Tokenizer",
    }


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")


def write_old_layout(folder: Path, config: dict[str, Any] | None = None) -> Path:
    """vocab.json, merges.txt, tokenizer_config.json."""
    vocab, merges = trained()
    write_json(folder / "vocab.json", vocab)
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges), ""]
    (folder / "merges.txt").write_text("\n".join(lines), "utf-8")
    write_json(folder / "tokenizer_config.json", tokenizer_config() if config is None else config)
    return folder


def tokenizer_json() -> dict[str, Any]:
    vocab, merges = trained()
    model = {"type": "BPE", "vocab": dict(vocab), "merges": [" ".join(pair) for pair in merges]}
    tokens = [added(name, id=i) for name, i in control_ids().items()]
    return {**byte_level_spec(model, False), "added_tokens": tokens}


def write_new_layout(folder: Path, spec: dict[str, Any] | None = None) -> Path:
    """tokenizer.json alone."""
    write_json(folder / "tokenizer.json", tokenizer_json() if spec is None else spec)
    return folder
