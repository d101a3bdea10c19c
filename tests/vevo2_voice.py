"""A whole folder of Vevo2 with random weights: what comes out of it is noise.

    PYTHONPATH=src:tests python tests/vevo2_voice.py FOLDER [--full]

writes one, to try the commands with. The AR has all of its new tokens. The networks are tiny, or,
with --full, of the published sizes (5 GB; but the text vocabulary is that of the tests).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from models.vevo2.acoustic_checkpoint import (
    flow_config,
    flow_tensors,
    vocoder_config,
    vocoder_tensors,
    write,
)
from models.vevo2.tokenizer_checkpoint import (
    CONTENT_STYLE,
    PROSODY,
    WhisperSizes,
    coco_tensors,
    statistics,
    whisper_config,
    whisper_tensors,
    write_coco,
    write_json,
    write_whisper,
)
from stapes.bench.speak import SpeakBench, flow_source, vocoder_source
from stapes.bench.tokenize import TokenizeBench, coco_source, whisper_source
from tensors.torch_archive import write_tensors
from text_models import Sizes
from vevo2_models import SIZES, write_ar, write_root

CODES, MELS, N_FFT, HOP = 16384, 128, 1920, 480
FULL_WHISPER = WhisperSizes(width=1024, layers=24, heads=16)
PUBLISHED_FLOW = {
    "mel_dim": MELS,
    "hidden_size": 1024,
    "num_layers": 16,
    "num_heads": 16,
    "cond_codebook_size": CODES,
}
PUBLISHED_VOCODER = {
    "input_channels": MELS,
    "dim": 1024,
    "intermediate_dim": 4096,
    "num_layers": 30,
    "n_fft": N_FFT,
    "hop_size": HOP,
}
FLOW = "acoustic_modeling/fm_emilia101k_singnet7k_repa"


def write_voice(root: Path) -> Path:
    """All parts, tiny, in the published layout, with Whisper inside."""
    write_root(root)
    write_coco(root / "tokenizer/contentstyle_fvq16384_12.5hz", coco_tensors(CONTENT_STYLE, 1))
    write_coco(root / "tokenizer/prosody_fvq512_6.25hz", coco_tensors(PROSODY, 2))
    write_whisper(root / "whisper-medium", whisper_tensors(), whisper_config())
    flow = write(root / FLOW, flow_tensors(mels=MELS, codes=CODES))
    _write_config(flow, flow_config(mel_dim=MELS, cond_codebook_size=CODES))
    write_tensors(flow / "whisper_stats.pt", statistics())
    vocoder = write(root / "vocoder", vocoder_tensors(mels=MELS, n_fft=N_FFT))
    _write_config(vocoder, vocoder_config(input_channels=MELS, n_fft=N_FFT, hop_size=HOP))
    save_file({"left": statistics()["mean"]}, vocoder / "model_1.safetensors")
    return root


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(f"// JSON5\n{json.dumps(config)}", "utf-8")


def write_full_voice(root: Path) -> Path:
    """The same with networks of the published sizes."""
    write_voice(root)
    sizes = Sizes(
        "qwen2",
        hidden_size=896,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=4864,
        vocab_size=SIZES.vocab_size,
        max_position_embeddings=32768,
    )
    write_ar(root / "contentstyle_modeling/posttrained", sizes=sizes)
    tokenize, speak = TokenizeBench(), SpeakBench()
    for folder, source in (
        ("tokenizer/contentstyle_fvq16384_12.5hz", coco_source(tokenize.content_style)),
        ("tokenizer/prosody_fvq512_6.25hz", coco_source(tokenize.prosody)),
        ("whisper-medium", whisper_source(tokenize)),
        (FLOW, flow_source(speak)),
        ("vocoder", vocoder_source(speak)),
    ):
        tensors = {name: source[name].to_f32() for name in source.shapes}
        save_file(tensors, root / folder / "model.safetensors")
    width = tokenize.whisper.d_model
    write_json(root / "whisper-medium/config.json", whisper_config(FULL_WHISPER))
    write_tensors(root / FLOW / "whisper_stats.pt", statistics(width))
    _write_config(root / FLOW, flow_config(**PUBLISHED_FLOW))
    _write_config(root / "vocoder", vocoder_config(**PUBLISHED_VOCODER))
    return root


if __name__ == "__main__":
    make = write_full_voice if "--full" in sys.argv else write_voice
    print(f"{make(Path(sys.argv[1]))}: random weights, whose sound is noise.")
