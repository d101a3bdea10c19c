"""Random aligners: logits, classes, prompts and times equal transformers' token classification."""

# ruff: noqa: RUF001

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stapes
from aligner_checkpoints import (
    aligner_hf_config,
    aligner_original_config,
    aligner_original_tensors,
    aligner_tensors,
)
from checkpoints import CONTROL, F32, Sizes, write_safetensors
from parity.oracle import Oracle, saved_tensors, torch
from sounds import babble
from stapes.audio import log_mel
from stapes.decoder.prompt import CheckedPrompt, check_prompt
from stapes.models.qwen3_asr.aligner import ForcedAligner
from stapes.models.qwen3_asr.aligner.repair import in_order
from stapes.text.words import alignable_words
from text.bpe_folder import write_json, write_new_layout, write_old_layout

pytestmark = pytest.mark.parity

# Each checkpoint has another shape, another number of classes, and another flag for the tie.
CHECKPOINTS = [
    (Sizes(), 40),
    (Sizes(tied=False), 25),
    (Sizes(num_attention_heads=8, num_key_value_heads=1, head_dim=16), 100),
    (Sizes(num_attention_heads=3, num_key_value_heads=1, hidden_size=72), 33),
    (Sizes(head_dim=10, hidden_size=36, intermediate_size=77), 512),
    (Sizes(num_hidden_layers=4, encoder_layers=3), 50),
    (Sizes(d_model=80, encoder_attention_heads=5, downsample_hidden_size=17), 31),
    (Sizes(n_window_infer=100, rope_theta=1e4, vocab_size=600), 700),
]
SAMPLES = [3000, 16_000, 31_999, 48_077, 128_160, 24_160, 80_080, 160_001]
TEXTS = [
    "Hello, world! They're asleep; no, no, no.",
    "你好，世界。今天 Python3 天气很好！",
    "Größe über Straße, well-known naïve café 3.5%",
    "안녕하세요 세계. русский язык?",
    " ".join(["no"] * 120),
]


@dataclass
class Case:
    number: int
    model: Any
    hf: ForcedAligner
    original: ForcedAligner

    def sounds(self) -> list[F32]:
        lengths = [SAMPLES[self.number], 32_160]
        return [babble(n, seed=10 * self.number + i) for i, n in enumerate(lengths)]

    @torch.no_grad()
    def logits(self, prompt: CheckedPrompt, mel: F32) -> F32:
        """Of transformers, for every position: [prompt, classes]."""
        features = Oracle._features(self, mel)  # type: ignore[arg-type]
        ids = torch.tensor([prompt.ids.tolist()])
        return self.model(input_ids=ids, **features).logits[0].numpy()


def load(folder: Path) -> ForcedAligner:
    return stapes.load_aligner(folder, weights="f32", kv="f32", threads=1)


@pytest.fixture(scope="module", params=range(len(CHECKPOINTS)))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A checkpoint as transformers saves it, and the same in the original layout."""
    from transformers import Qwen3ASRConfig, Qwen3ASRForTokenClassification

    sizes, classes = CHECKPOINTS[request.param]
    folder: Path = tmp_path_factory.mktemp("aligner")
    model = Qwen3ASRForTokenClassification(Qwen3ASRConfig(**aligner_hf_config(sizes, classes)))
    tensors = aligner_tensors(sizes, request.param, classes)
    with torch.no_grad():
        parameters = dict(model.named_parameters())
        assert set(parameters) == set(tensors)
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(tensors[name]))
    model.float().eval().save_pretrained(folder / "hf")
    hf = write_new_layout(folder / "hf")
    original = folder / "original"
    original.mkdir()
    write_json(original / "config.json", aligner_original_config(aligner_hf_config(sizes, classes)))
    renamed = aligner_original_tensors(saved_tensors(hf))
    write_safetensors(original / "model.safetensors", renamed)
    return Case(request.param, model, load(hf), load(write_old_layout(original)))


def prompt_of(aligner: ForcedAligner, mel: F32, text: str) -> tuple[CheckedPrompt, Any]:
    spelled = [word.spelled for word in alignable_words(text)]
    built = aligner.prompts.build(aligner.encoder.encode(mel), spelled)
    return check_prompt(built.prompt, 1, aligner.decoder.spec), built.marks


def test_logits_and_classes_equal_transformers(case: Case):
    seen: set[int] = set()
    for sound, text in zip(case.sounds(), (TEXTS[case.number % 5], TEXTS[4]), strict=True):
        mel = log_mel(sound)
        prompt, marks = prompt_of(case.hf, mel, text)
        expected = case.logits(prompt, mel)[marks]
        assert expected.std() > 0.3  # or the tolerance would say nothing
        found = case.hf.decoder.new_session().prefill(prompt, marks, "logits")
        assert np.abs(found - expected).max() < 1e-3
        classes = case.hf.classes(prompt, marks)
        assert classes.tolist() == expected.argmax(axis=1).tolist()
        seen |= set(classes.tolist())
    assert len(seen) > 5


def test_both_layouts_give_the_same_bits(case: Case):
    mel = log_mel(case.sounds()[0])
    prompt, _ = prompt_of(case.hf, mel, TEXTS[0])
    twin, marks = prompt_of(case.original, mel, TEXTS[0])
    assert twin.ids.tolist() == prompt.ids.tolist()
    assert twin.values.tobytes() == prompt.values.tobytes()
    logits = [
        aligner.decoder.new_session().prefill(twin, marks, "logits").tobytes()
        for aligner in (case.hf, case.original)
    ]
    assert logits[0] == logits[1]


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Any:
    import transformers

    folder = write_old_layout(tmp_path_factory.mktemp("tokenizer"))
    tokenizer = transformers.Qwen2TokenizerFast.from_pretrained(folder)
    tokenizer.audio_token = "<|audio_pad|>"
    tokenizer.audio_bos_token, tokenizer.audio_eos_token = "<|audio_start|>", "<|audio_end|>"
    return transformers.Qwen3ASRProcessor(transformers.Qwen3ASRFeatureExtractor(), tokenizer)


@pytest.mark.parametrize("text", TEXTS)
def test_words_and_times_equal_the_processors(case: Case, processor: Any, text: str):
    """From sound and text to seconds; the template is that of the published -hf files."""
    sound = babble(70_000, seed=5)  # longer than most models' classes reach
    words = processor.split_words_for_alignment(text)
    rendered = "<|audio_start|><|audio_pad|><|audio_end|>"
    rendered += "".join(f"{word}<timestamp><timestamp>" for word in words)
    inputs = processor(text=rendered, audio=sound, sampling_rate=16_000, return_tensors="pt")
    ids = inputs["input_ids"]
    prompt, _ = prompt_of(case.hf, log_mel(sound), text)
    assert ids[0].tolist() == prompt.ids.tolist()
    with torch.no_grad():
        logits = case.model(
            input_ids=ids,
            input_features=inputs["input_features"],
            input_features_mask=inputs["input_features_mask"],
        ).logits
    (expected,) = processor.decode_forced_alignment(
        logits, ids, [words], CONTROL["<timestamp>"], timestamp_segment_time=80
    )
    found = case.hf.align(sound, text, sample_rate=16_000)
    duration_s = 70_000 / 16_000
    for name in ("start", "end"):
        theirs = [min(item[f"{name}_time"], duration_s) for item in expected]
        ours = [getattr(word, f"{name}_s") for word in found]
        assert ours == pytest.approx(theirs, abs=1.001e-3)  # they cut to whole milliseconds


# What is the same there: no accents apart from their letters, no typographic apostrophes, and no
# kana beside other letters or across full-width marks, which need a dictionary of Japanese.
ALIKE = "ab'1.-—…¿«»“( )\n\té漢字한글ยา"


@given(st.text(st.sampled_from(ALIKE), max_size=40))
def test_words_are_split_alike(text: str):
    from transformers import Qwen3ASRProcessor

    theirs = Qwen3ASRProcessor.split_words_for_alignment(SimpleNamespace(), text)
    ours = [word.spelled for word in alignable_words(text)]
    assert ours == [word for word in theirs if word.strip("'")]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=60))
def test_times_are_repaired_alike(classes: list[int]):
    from transformers.models.qwen3_asr.processing_qwen3_asr import _fix_timestamps

    times = [80.0 * number for number in classes]
    assert in_order(times) == pytest.approx(_fix_timestamps(np.array(times)), abs=1.001)
