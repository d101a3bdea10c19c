"""Writes folders with tiny random Qwen3-ForcedAligner checkpoints, in both layouts.

Beside a recogniser's they have another head, and say so in another way in each layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from checkpoints import (
    CONTROL,
    Layout,
    Sizes,
    Tensors,
    hf_config,
    original_config,
    original_tensors,
    random_tensors,
    random_values,
    shapes,
    write_safetensors,
)
from text.bpe_folder import write_json, write_new_layout, write_old_layout

CLASSES = 40  # of 80 ms each: 3.2 s


def aligner_hf_config(sizes: Sizes, classes: int = CLASSES) -> dict[str, Any]:
    """config.json as transformers writes it: tied, since that is the default of the class."""
    labels = {str(i): f"LABEL_{i}" for i in range(classes)}
    return {
        **hf_config(sizes),
        "architectures": ["Qwen3ASRForTokenClassification"],
        "id2label": labels,
        "label2id": {label: int(i) for i, label in labels.items()},
        "tie_word_embeddings": True,
        "token_classification_bias": False,
    }


def aligner_original_config(hf: dict[str, Any]) -> dict[str, Any]:
    """The same model's config.json as it was first published. The tie flag is nowhere."""
    config = original_config(hf)
    config |= {"timestamp_token_id": CONTROL["<timestamp>"], "timestamp_segment_time": 80}
    thinker = config["thinker_config"]
    thinker |= {"model_type": "qwen3_forced_aligner", "classify_num": len(hf["id2label"])}
    for section in (config, thinker):  # every configuration may carry transformers' default
        section["id2label"] = {"0": "LABEL_0", "1": "LABEL_1"}
    del thinker["text_config"]["tie_word_embeddings"]
    return config


def aligner_shapes(sizes: Sizes, classes: int = CLASSES) -> dict[str, tuple[int, ...]]:
    """Every tensor of the -hf layout."""
    recogniser = {name: s for name, s in shapes(sizes).items() if name != "lm_head.weight"}
    return {**recogniser, "score.weight": (classes, sizes.hidden_size)}


def aligner_tensors(sizes: Sizes, seed: int = 0, classes: int = CLASSES) -> Tensors:
    """Weights with which classes change from word to word and with the audio."""
    tensors = random_tensors(sizes, seed)
    tensors.pop("lm_head.weight", None)
    rng = np.random.default_rng(seed + 1)
    head = random_values(rng, "lm_head.weight", (classes, sizes.hidden_size))
    return {**tensors, "score.weight": head}


def aligner_original_tensors(tensors: Tensors) -> Tensors:
    """The names of the original layout, where the head is called as a recogniser's."""
    renamed = {("lm_head.weight" if n == "score.weight" else n): v for n, v in tensors.items()}
    return original_tensors(renamed)


def write_aligner(
    folder: Path,
    sizes: Sizes | None = None,
    *,
    layout: Layout = "hf",
    seed: int = 0,
    config: dict[str, Any] | None = None,
    tensors: Tensors | None = None,
) -> Path:
    """A whole folder: config, weights, tokenizer.

    `config` and `tensors` take the place of the ones made from `sizes` and `seed`, in the names
    of the -hf layout.
    """
    sizes = Sizes() if sizes is None else sizes
    config = aligner_hf_config(sizes) if config is None else config
    tensors = aligner_tensors(sizes, seed) if tensors is None else tensors
    folder.mkdir(parents=True, exist_ok=True)
    original = layout == "original"
    write_json(folder / "config.json", aligner_original_config(config) if original else config)
    stored = aligner_original_tensors(tensors) if original else tensors
    write_safetensors(folder / "model.safetensors", stored)
    return write_old_layout(folder) if original else write_new_layout(folder)
