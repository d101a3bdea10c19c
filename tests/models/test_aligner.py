"""Forced alignment: repair, times, files in both layouts, and what is refused."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stapes
from aligner_checkpoints import (
    CLASSES,
    aligner_hf_config,
    aligner_shapes,
    aligner_tensors,
    write_aligner,
)
from checkpoints import CONTROL, Sizes
from sounds import babble
from stapes.audio import log_mel
from stapes.decoder.prompt import check_prompt
from stapes.errors import CapacityError, ModelError, NumericError, RequestError
from stapes.graph import Tracer
from stapes.models.convert import convert
from stapes.models.description import describe
from stapes.models.qwen3_asr.aligner import ForcedAligner
from stapes.models.qwen3_asr.aligner.model import MOST_SECONDS, read_short
from stapes.models.qwen3_asr.aligner.repair import in_order, longest_ascending
from stapes.models.transcript import Word
from stapes.options import RuntimeOptions

SMALL = Sizes(d_model=32, downsample_hidden_size=4, encoder_layers=1)
TEXT = "Hello, world! They're asleep; no, no, no."
SPELLED = ["Hello", "world", "They're", "asleep", "no", "no", "no"]
TWO_S = babble(32_000)


def load(path: Path, **options: Any) -> ForcedAligner:
    chosen = {"weights": "f32", "kv": "f32", "threads": 1, **options}
    return stapes.load_aligner(path, **chosen)


def align(model: ForcedAligner, samples: Any = TWO_S, text: str = TEXT, **options: Any) -> Any:
    return model.align(samples, text, sample_rate=16_000, **options)


def classes(model: ForcedAligner, samples: Any = TWO_S) -> list[int]:
    embeddings = model.encoder.encode(log_mel(samples, model.config.encoder.num_mel_bins))
    built = model.prompts.build(embeddings, SPELLED)
    prompt = check_prompt(built.prompt, 1, model.decoder.spec)
    return model.classes(prompt, built.marks).tolist()


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_aligner(tmp_path_factory.mktemp("aligner"), SMALL)


@pytest.fixture(scope="module")
def model(pristine: Path) -> ForcedAligner:
    return load(pristine)


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """A copy for one test."""
    return shutil.copytree(pristine, tmp_path / "model")


def rewrite(folder: Path, name: str = "config.json", **values: Any) -> Path:
    """Change values of a configuration file; None takes a key away."""
    path = folder / name
    config = (json.loads(path.read_text()) if path.exists() else {}) | values
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return folder


# -- repair --------------------------------------------------------------------------------------

TIMES = st.lists(st.integers(0, 30), max_size=40)


@pytest.mark.parametrize(
    ("given_times", "repaired"),
    [
        ([], []),
        ([7], [7]),
        ([1, 1, 2, 2], [1, 1, 2, 2]),
        ([1, 90, 2, 3], [1, 1, 2, 3]),  # one outlier: as near to both, the left one
        ([1, 90, 80, 2, 3], [1, 1, 2, 2, 3]),  # two: each to its own neighbour
        ([1, 90, 80, 70, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7]),  # more: spread between
        ([90, 80, 5, 6, 7], [5, 5, 5, 6, 7]),
        ([5, 6, 7, 1, 0], [5, 6, 7, 7, 7]),
        ([9, 8, 7, 1, 2, 3, 4], [1, 1, 1, 1, 2, 3, 4]),
    ],
)
def test_outliers_follow_their_neighbours(given_times: list[float], repaired: list[float]):
    assert in_order(given_times) == repaired


@given(TIMES)
def test_repaired_times_are_in_order_and_the_believed_ones_unchanged(times: list[int]):
    repaired, good = in_order(times), longest_ascending(times)
    assert len(repaired) == len(times)
    assert all(a <= b for a, b in pairwise(repaired))
    assert [repaired[at] for at in good] == [times[at] for at in good]
    assert in_order(repaired) == repaired


@given(TIMES)
def test_as_many_as_possible_are_believed(times: list[int]):
    longest = [1] * len(times)
    for at, value in enumerate(times):
        before = [longest[k] for k in range(at) if times[k] <= value]
        longest[at] = 1 + max(before, default=0)
    good = longest_ascending(times)
    assert len(good) == max(longest, default=0)
    assert all(a < b and times[a] <= times[b] for a, b in pairwise(good))


# -- times ---------------------------------------------------------------------------------------


def test_words_are_the_text_in_order_and_inside_the_recording(model: ForcedAligner):
    words = align(model)
    assert [w.text for w in words] == TEXT.split()
    times = [t for w in words for t in (w.start_s, w.end_s)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= 2.0
    repaired = in_order([0.08 * c for c in classes(model)])
    assert times == pytest.approx([min(t, 2.0) for t in repaired])


def test_classes_change_with_the_audio_and_the_place(model: ForcedAligner):
    """Or the other tests would say nothing."""
    found = [classes(model, babble(32_000, seed)) for seed in range(3)]
    assert all(len(set(each)) > 4 for each in found)
    assert found[0] != found[1] != found[2]


@given(st.lists(st.integers(0, CLASSES - 1), min_size=14, max_size=14), st.floats(0.05, 3.0))
def test_whatever_the_model_says(model: ForcedAligner, said: list[int], duration_s: float):
    rigged = ForcedAligner.__new__(ForcedAligner)
    vars(rigged).update(vars(model), classes=lambda prompt, marks: np.array(said, np.int32))
    samples = TWO_S[: round(16_000 * duration_s)] if duration_s < 2 else TWO_S
    words = rigged.align_samples(samples, TEXT, start_s=100.0)
    times = [t for w in words for t in (w.start_s, w.end_s)]
    assert [w.text for w in words] == TEXT.split()
    assert all(a <= b for a, b in pairwise(times))
    assert times[0] >= 100.0
    assert times[-1] <= 100.0 + samples.size / 16_000


def test_a_class_lasts_what_the_files_say(folder: Path, model: ForcedAligner):
    assert model.config.segment_ms == 80
    rewrite(folder, "processor_config.json", timestamp_segment_time=40)
    assert load(folder).config.segment_ms == 40
    half = align(load(folder))
    assert half[-1].end_s == pytest.approx(align(model)[-1].end_s / 2)
    assert load(rewrite(folder, timestamp_segment_time=20.5)).config.segment_ms == 20.5


def test_every_source_gives_the_same(model: ForcedAligner, tmp_path: Path):
    path = Path(__file__).parents[2] / "examples" / "digits-3.wav"
    words = model.align(path, TEXT)
    assert words == model.align(path.read_bytes(), TEXT)
    assert words == model.align(io.BytesIO(path.read_bytes()), TEXT)
    piece = read_short(path, None).samples
    assert words == model.align_samples(piece, TEXT)
    later = tuple(Word(w.text, 60 + w.start_s, 60 + w.end_s) for w in words)
    assert model.align_samples(piece, TEXT, start_s=60) == later


def test_marks_of_blocks_further_on_are_read_too(model: ForcedAligner):
    """A prompt of more than one block of 256 rows, with marks in the last ones alone."""
    text = " ".join(f"{TEXT} {number}" for number in range(12))
    words = align(model, babble(480_000), text)
    assert [w.text for w in words] == text.split()
    assert len({w.start_s for w in words}) > 10


def test_the_transcript_has_all_that_formats_need(model: ForcedAligner):
    made = model.transcript(TWO_S, f" {TEXT}\n", sample_rate=16_000, language="en")
    (segment,) = made.segments
    assert (made.text, made.language, made.duration_s) == (TEXT, "English", 2.0)
    assert segment.text == TEXT
    assert (segment.start_s, segment.end_s) == (segment.words[0].start_s, segment.words[-1].end_s)
    assert (made.tokens.audio, made.tokens.new, made.token_ids) == (26, 0, ())
    assert made.timings_s.total >= made.timings_s.encode > 0


@pytest.mark.parametrize("text", ["", " ... ", "— !\n"])
def test_without_words_there_are_no_times(model: ForcedAligner, text: str):
    assert align(model, text=text) == ()
    assert model.transcript(TWO_S, text, sample_rate=16_000).segments == ()


def test_control_tokens_in_a_text_are_plain(model: ForcedAligner):
    words = align(model, text="a <timestamp> <|audio_pad|> b")
    assert [w.text for w in words] == ["a", "<timestamp>", "<|audio_pad|>", "b"]


def test_where_the_time_went(pristine: Path):
    tracer = Tracer()
    align(load(pristine, tracer=tracer))
    names = {event["name"] for event in json.loads(tracer.to_json())["traceEvents"]}
    assert {"load", "audio", "mel", "encode", "prefill"} <= names


# -- files ---------------------------------------------------------------------------------------


def test_the_original_layout_is_the_same_model(tmp_path: Path, model: ForcedAligner):
    original = load(write_aligner(tmp_path / "original", SMALL, layout="original"))
    assert classes(original) == classes(model)
    assert align(original) == align(model)


@pytest.mark.parametrize("layout", ["hf", "original"])
def test_a_converted_one_answers_as_before(tmp_path: Path, layout: Any):
    folder = write_aligner(tmp_path / "model", SMALL, layout=layout)
    rewrite(folder, "processor_config.json", timestamp_segment_time=40)
    file = tmp_path / "model.stapes"
    convert(folder, file, RuntimeOptions("q8", threads=1))
    expected = align(load(folder, weights="q8"))
    assert align(load(file, weights=None)) == expected


@pytest.mark.parametrize("layout", ["hf", "original"])
def test_what_info_says(tmp_path: Path, layout: Any):
    folder = write_aligner(tmp_path / "model", SMALL, layout=layout)
    told = describe(folder, RuntimeOptions())
    assert told["architecture"] == "qwen3_forced_aligner"
    assert told["decoder"]["logits_size"] == CLASSES
    assert told["parameters"] == sum(v.size for v in aligner_tensors(SMALL).values())


def test_the_published_sizes_give_the_published_number_of_bytes():
    """Of the -hf layout's file in bf16, but for the header."""
    published = Sizes(
        *(1024, 24, 16, 4096, 480, 128, 800),
        *(1024, 28, 16, 8, 128, 3072, 152064),
    )
    parameters = sum(int(np.prod(s)) for s in aligner_shapes(published, 5000).values())
    assert 0 < 1_835_545_960 - 2 * parameters < 200_000


def test_a_recogniser_is_no_aligner_and_the_other_way_round(pristine: Path):
    with pytest.raises(ModelError, match="a forced aligner, which `stapes align` runs"):
        stapes.load(pristine)
    with pytest.raises(ModelError, match="a speech model, which `stapes transcribe` runs"):
        stapes.load_aligner("tiny-en")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"token_classification_bias": True}, "token_classification_bias is True"),
        ({"timestamp_token_id": None}, "has no timestamp_token_id"),
        ({"timestamp_token_id": 3}, "is 3, but the tokenizer's <timestamp> is 5"),
        ({"audio_token_id": 3}, "audio_token_id is 3"),
        ({"timestamp_segment_time": 0}, "timestamp_segment_time is 0 ms"),
        ({"id2label": None}, "has no classify_num or num_labels"),
        ({"id2label": {"0": "a", "1": "b"}}, "score.weight"),
        ({"num_labels": 10**9, "id2label": None}, "more than 1000000"),
    ],
)
def test_files_that_contradict(folder: Path, values: dict[str, Any], message: str):
    with pytest.raises(ModelError, match=message):
        load(rewrite(folder, **values))


def test_a_vocabulary_without_the_marks_is_refused(tmp_path: Path):
    sizes = dataclasses.replace(SMALL, vocab_size=CONTROL["<timestamp>"])
    folder = write_aligner(tmp_path / "model", sizes)
    with pytest.raises(ModelError, match=f"reach up to {CONTROL['<timestamp>']}"):
        load(folder)


def test_the_tie_flag_changes_nothing(tmp_path: Path, model: ForcedAligner):
    config = aligner_hf_config(SMALL)
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = False
    assert classes(load(write_aligner(tmp_path / "m", SMALL, config=config))) == classes(model)


# -- what is refused -----------------------------------------------------------------------------


def test_a_long_recording_is_refused_with_its_length(model: ForcedAligner, never: Any):
    model.encoder.encode = never
    samples = np.zeros(16_000 * 301, np.int16)
    with pytest.raises(CapacityError, match=r"lasts 301\.0 s or more.* at most 300 s"):
        align(model, samples)
    with pytest.raises(CapacityError, match=r"lasts 301\.0 s"):
        model.align_samples(samples.astype(np.float32), TEXT)


def test_exactly_the_longest_is_read():
    samples = np.zeros(round(MOST_SECONDS * 8000), np.int16)
    assert read_short(samples, 8000).duration_s == MOST_SECONDS


def test_a_prompt_that_is_too_long_is_refused_before_the_audio_is_encoded(
    tmp_path: Path, never: Any
):
    sizes = dataclasses.replace(SMALL, max_position_embeddings=64)
    model = load(write_aligner(tmp_path / "model", sizes))
    assert align(model, text="no")
    model.encoder.encode = never
    with pytest.raises(CapacityError, match="but the model has 64"):
        align(model, text="no " * 20)


@pytest.fixture
def never(model: ForcedAligner) -> Any:
    """Must not be called; what it replaced in the shared model comes back."""

    def fail(*args: object) -> Any:
        raise AssertionError("called")

    yield fail
    vars(model.encoder).pop("encode", None)


@pytest.mark.parametrize("language", ["en", "German", "zh-HK", None])
def test_languages_that_it_was_trained_on(model: ForcedAligner, language: str | None):
    assert align(model, language=language) == align(model)


@pytest.mark.parametrize(
    ("language", "message"),
    [("th", "not trained on Thai, only on Chinese, English"), ("Elvish", "'Elvish' is not known")],
)
def test_other_languages_are_refused(model: ForcedAligner, language: str, message: str):
    with pytest.raises(RequestError, match=message):
        align(model, language=language)
    with pytest.raises(RequestError, match=message):
        model.align_samples(TWO_S, TEXT, language=language)


def test_a_nan_is_an_error(model: ForcedAligner, monkeypatch: pytest.MonkeyPatch):
    class Session:
        def prefill(self, prompt: Any, marks: Any) -> Any:
            return np.where(np.arange(marks.size) == 5, -1, 1)

    monkeypatch.setattr(model.decoder, "new_session", Session)
    with pytest.raises(NumericError, match="1 of 14 times hold a NaN, first those of time 5"):
        align(model)


def test_several_threads_take_turns(model: ForcedAligner):
    sounds = [babble(16_000, seed) for seed in range(6)]
    alone = [align(model, sound) for sound in sounds]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(partial(align, model), sounds)) == alone
