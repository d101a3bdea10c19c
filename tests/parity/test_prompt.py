"""Prompt ids equal those of transformers' processor, placeholders counted by it and by us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import Sizes, write_checkpoint
from parity.oracle import Ours
from sounds import babble
from stapes.audio import log_mel
from stapes.models.qwen3_asr.encoder import audio_tokens
from text.bpe_folder import write_old_layout

pytestmark = pytest.mark.parity

TEMPLATE = (
    "<|im_start|>system\n{context}<|im_end|>\n<|im_start|>user\n"
    "<|audio_start|><|audio_pad|><|audio_end|><|im_end|>\n<|im_start|>assistant\n{answer}"
)


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Any:
    import transformers

    folder: Path = write_old_layout(tmp_path_factory.mktemp("tokenizer"))
    tokenizer = transformers.Qwen2TokenizerFast.from_pretrained(folder)
    tokenizer.audio_token = "<|audio_pad|>"
    tokenizer.audio_bos_token, tokenizer.audio_eos_token = "<|audio_start|>", "<|audio_end|>"
    extractor = transformers.Qwen3ASRFeatureExtractor()
    return transformers.Qwen3ASRProcessor(extractor, tokenizer)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Ours:
    return Ours(write_checkpoint(tmp_path_factory.mktemp("model"), Sizes()))


def their_ids(processor: Any, samples: int, context: str = "", answer: str = "") -> list[int]:
    text = TEMPLATE.format(context=context, answer=answer)
    out = processor(text=text, audio=babble(samples), sampling_rate=16_000)
    return np.asarray(out["input_ids"])[0].tolist()


@pytest.mark.parametrize("context", ["", "Ada Lovelace, Größe 42", "\n list:\n- 你好\n"])
@pytest.mark.parametrize("language", [None, "German"])
def test_prompt_ids(processor: Any, ours: Ours, context: str, language: str | None):
    embeddings = ours.encode(log_mel(babble(20_000)))
    prompt = ours.model.prompts.build(embeddings, context, language)
    answer = "" if language is None else f"language {language}<asr_text>"
    assert list(prompt.token_ids) == their_ids(processor, 20_000, context, answer)


@pytest.mark.parametrize("samples", [1, 7999, 8000, 8159, 8160, 15_999, 16_000, 16_160, 99_999])
def test_placeholders_are_counted_alike(processor: Any, ours: Ours, samples: int):
    mel = log_mel(babble(samples))
    pad = ours.model.prompts.control.audio_pad
    assert their_ids(processor, samples).count(pad) == audio_tokens(mel.shape[0])
