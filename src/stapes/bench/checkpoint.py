"""A full-size checkpoint's folder with random weights: what loading and converting are timed with.

Configuration and tokenizer are those of the bundled model, in the sizes of a published one.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stapes.bench.synthetic import SYNTHETIC, RandomTensors
from stapes.models.qwen3_asr.config import Qwen3AsrConfig
from stapes.models.qwen3_asr.networks import expected_tensors
from stapes.models.registry import BUNDLED

_TEMPLATE = BUNDLED / "tiny-en"
# Ids of the published tokenizers.
_FIRST_CONTROL = 151643
_CONTROL = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|audio_start|>": 151669,
    "<|audio_end|>": 151670,
    "<|audio_pad|>": 151676,
    "<asr_text>": 151704,
    "<timestamp>": 151705,
}


def write_checkpoint(folder: Path, synthetic: str) -> None:
    """Write config, tokenizer and bf16 weights of a size of `SYNTHETIC` into an empty folder."""
    config = SYNTHETIC[synthetic]
    for name in ("tokenizer_config.json", "chat_template.jinja", "processor_config.json"):
        shutil.copyfile(_TEMPLATE / name, folder / name)
    _write_json(folder / "config.json", _config(config))
    _write_json(folder / "generation_config.json", {"eos_token_id": _eos()})
    _write_json(folder / "tokenizer.json", _tokenizer())
    _write_tensors(folder / "model.safetensors", config)


def _eos() -> list[int]:
    return [_CONTROL["<|endoftext|>"], _CONTROL["<|im_end|>"]]


def _config(config: Qwen3AsrConfig) -> dict[str, Any]:
    values = _read_json(_TEMPLATE / "config.json")
    decoder = vars(config.decoder)
    values["audio_config"] |= vars(config.encoder)
    known = values["text_config"]
    known |= {name: decoder[name] for name in known if name in decoder}
    known["layer_types"] = ["full_attention"] * config.decoder.num_hidden_layers
    ids = {"pad_token_id": _eos()[0], "eos_token_id": _eos()}
    known |= ids
    timestamp = {"timestamp_token_id": _CONTROL["<timestamp>"]}
    return values | ids | timestamp | {"audio_token_id": config.audio_token_id}


def _tokenizer() -> dict[str, Any]:
    """As many tokens and merges as a published tokenizer has."""
    values = _read_json(_TEMPLATE / "tokenizer.json")
    vocab, merges = values["model"]["vocab"], values["model"]["merges"]
    for left, right in _pairs([token for token in vocab if len(token) == 1]):
        if len(vocab) == _FIRST_CONTROL:
            break
        if left + right not in vocab:
            vocab[left + right] = len(vocab)
            merges.append([left, right])
    for token in values["added_tokens"]:
        token["id"] = _CONTROL[token["content"]]
    values["added_tokens"].sort(key=lambda token: token["id"])
    return values


def _pairs(letters: list[str]) -> Iterator[tuple[str, str]]:
    """Two letters, then three."""
    pairs = list(itertools.product(letters, letters))
    yield from pairs
    for (first, second), last in itertools.product(pairs, letters):
        yield first + second, last


def _write_tensors(path: Path, config: Qwen3AsrConfig) -> None:
    shapes = expected_tensors(config)
    tensors = RandomTensors(config)
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in shapes:
            tensors[name].raw().tofile(file)


def _read_json(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")
