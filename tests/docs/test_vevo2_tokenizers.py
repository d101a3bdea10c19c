"""docs/models/vevo2-tokenizers.md: its code runs on a checkpoint of the published layout."""

from __future__ import annotations

import re
import shutil
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.vevo2.tokenizer_checkpoint import melody, statistics, write_all
from tensors.torch_archive import write_tensors

PAGE = Path(__file__).parents[2] / "docs/models/vevo2-tokenizers.md"


def write_wav(path: Path, samples: np.ndarray) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes((samples * 32767).astype("<i2").tobytes())


def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("librosa")
    paths = write_all(tmp_path / "Vevo2")
    shutil.move(paths.whisper, tmp_path / "whisper-medium")
    acoustic = tmp_path / "Vevo2/acoustic_modeling/fm_emilia101k_singnet7k_repa"
    acoustic.mkdir(parents=True)
    write_tensors(acoustic / "whisper_stats.pt", statistics())
    write_wav(tmp_path / "voice.wav", melody(2.0))
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    exec(code, namespace)
    assert namespace["content_style"].shape == (25,)
    assert namespace["prosody"].shape == (13,)
