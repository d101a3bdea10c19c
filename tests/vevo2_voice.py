"""A whole folder of Vevo2 with random weights: what comes out of it is noise.

    PYTHONPATH=src:tests python tests/vevo2_voice.py FOLDER

writes one, to try the commands with. The AR has all of its tokens, the networks are tiny.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

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
    coco_tensors,
    statistics,
    whisper_config,
    whisper_tensors,
    write_coco,
    write_whisper,
)
from tensors.torch_archive import write_tensors
from vevo2_models import write_root

CODES, MELS, N_FFT, HOP = 16384, 128, 1920, 480
FLOW = "acoustic_modeling/fm_emilia101k_singnet7k_repa"


def write_voice(root: Path) -> Path:
    """All parts, tiny, in the published layout, with Whisper inside."""
    write_root(root)
    write_coco(root / "tokenizer/contentstyle_fvq16384_12.5hz", coco_tensors(CONTENT_STYLE, 1))
    write_coco(root / "tokenizer/prosody_fvq512_6.25hz", coco_tensors(PROSODY, 2))
    write_whisper(root / "whisper-medium", whisper_tensors(), whisper_config())
    flow = write(root / FLOW, flow_tensors(mels=MELS, codes=CODES))
    commented = json.dumps(flow_config(mel_dim=MELS, cond_codebook_size=CODES))
    (flow / "config.json").write_text(f"// JSON5\n{commented}", "utf-8")
    write_tensors(flow / "whisper_stats.pt", statistics())
    vocoder = write(root / "vocoder", vocoder_tensors(mels=MELS, n_fft=N_FFT))
    config = vocoder_config(input_channels=MELS, n_fft=N_FFT, hop_size=HOP)
    (vocoder / "config.json").write_text(json.dumps(config), "utf-8")
    save_file({"left": statistics()["mean"]}, vocoder / "model_1.safetensors")
    return root


if __name__ == "__main__":
    print(f"{write_voice(Path(sys.argv[1]))}: random weights, whose sound is noise.")
