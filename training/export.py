"""Step 4: write a checkpoint as an ordinary Hugging Face folder ("-hf" layout), bf16.

    python -m training.export [--checkpoint training/runs/second/last.pt] [--output DIR]

Without a checkpoint (`--untrained`) the folder holds random weights of the right shape.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen3ASRForConditionalGeneration

from training.model import build_model
from training.tokenizer import save_tokenizer

ROOT = Path(__file__).parent.parent
BUNDLED = ROOT / "src/stapes/models/bundled/tiny-en"
CHECKPOINT = Path(__file__).parent / "runs/second/last.pt"
PROCESSOR = {
    "processor_class": "Qwen3ASRProcessor",
    "timestamp_segment_time": 80,
    "feature_extractor": {
        "feature_extractor_type": "Qwen3ASRFeatureExtractor",
        "chunk_length": 30,
        "dither": 0.0,
        "feature_size": 128,
        "hop_length": 160,
        "min_length": 8000,
        "n_fft": 400,
        "n_window": 50,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
        "sampling_rate": 16000,
    },
}
CHAT_TEMPLATE = (
    "{%- set ns = namespace(system='') -%}"
    "{%- for m in messages if m.role == 'system' -%}"
    "{%- if m.content is string -%}{%- set ns.system = m.content -%}"
    "{%- else -%}{%- for c in m.content if c.type == 'text' -%}"
    "{%- set ns.system = ns.system + c.text -%}{%- endfor -%}{%- endif -%}"
    "{%- endfor -%}"
    "{{- '<|im_start|>system\\n' + ns.system + '<|im_end|>\\n' -}}"
    "{%- for m in messages if m.role == 'user' -%}"
    "{{- '<|im_start|>user\\n' -}}"
    "{%- for c in m.content if c is not string and c.type == 'audio' -%}"
    "{{- '<|audio_start|><|audio_pad|><|audio_end|>' -}}{%- endfor -%}"
    "{{- '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- set last = messages[-1] -%}"
    "{%- if last.role == 'assistant' -%}{{- '<|im_start|>assistant\\n' -}}"
    "{%- for c in last.content -%}{{- c.text -}}{%- endfor -%}"
    "{%- elif add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)


def write_folder(model: Qwen3ASRForConditionalGeneration, folder: Path) -> None:
    """Write weights, configs and tokenizer into an empty folder."""
    tokenizer = save_tokenizer(folder)
    config = model.config
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=list(config.eos_token_id), pad_token_id=config.pad_token_id
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    text = json.dumps(PROCESSOR, indent=2) + "\n"
    (folder / "processor_config.json").write_text(text)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    (folder / "model.safetensors").chmod(0o644)
    assert len(tokenizer) <= config.text_config.vocab_size


def replace_folder(fresh: Path, target: Path) -> None:
    """Put `fresh` in the place of `target` by renaming, so that no reader sees half a model."""
    old = target.with_name(target.name + ".old")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def export(checkpoint: Path | None, output: Path) -> None:
    """Export the averaged weights of a checkpoint, or random ones."""
    fresh = output.with_name(f".{output.name}.fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    model = build_model(save_tokenizer(fresh))
    if checkpoint is not None:
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        model.load_state_dict(state["ema"])
    write_folder(model.eval(), fresh)
    replace_folder(fresh, output)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--output", type=Path, default=BUNDLED)
    parser.add_argument("--untrained", action="store_true")
    args = parser.parse_args()
    export(None if args.untrained else args.checkpoint, args.output)
    size = sum(file.stat().st_size for file in args.output.iterdir())
    print(f"{args.output}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
