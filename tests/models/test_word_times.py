"""Transcription with an aligner: words of each segment, inside it, and their text its text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import stapes
from aligner_checkpoints import write_aligner
from checkpoints import Sizes
from stapes.errors import NumericError
from stapes.models.qwen3_asr.aligner import ForcedAligner
from stapes.models.transcript import Segment, Transcript

DIGITS = Path(__file__).parents[2] / "examples" / "digits-10.flac"
GAP_S = 3.0


@pytest.fixture(scope="module")
def model():
    return stapes.load("tiny-en")


@pytest.fixture(scope="module")
def aligner(tmp_path_factory: pytest.TempPathFactory) -> ForcedAligner:
    """A random one; its times mean nothing but must be in order and inside."""
    folder = write_aligner(tmp_path_factory.mktemp("aligner"), Sizes())
    return stapes.load_aligner(folder, weights="f32")


@pytest.fixture(scope="module")
def two_parts() -> NDArray[np.float32]:
    """The digits twice, with silence between."""
    from stapes.audio import read_audio

    samples = read_audio(DIGITS).samples
    return np.concatenate([samples, np.zeros(int(GAP_S * 16000), np.float32), samples])


def timed(model, aligner, samples, **options) -> Transcript:
    return model.transcribe(samples, sample_rate=16000, aligner=aligner, **options)


def assert_words_fit(segment: Segment) -> None:
    assert " ".join(word.text for word in segment.words) == segment.text
    times = [t for word in segment.words for t in (word.start_s, word.end_s)]
    assert times == sorted(times)
    assert segment.start_s <= times[0]
    assert times[-1] <= segment.end_s + 1e-6


def test_each_segment_has_its_words_inside_it(model, aligner, two_parts):
    found = timed(model, aligner, two_parts)
    assert len(found.segments) >= 2
    for segment in found.segments:
        assert_words_fit(segment)
    assert found.timings_s.align > 0


def test_the_text_is_the_same_as_without(model, aligner, two_parts):
    without = model.transcribe(two_parts, sample_rate=16000)
    found = timed(model, aligner, two_parts)
    assert found.text == without.text
    assert all(segment.words == () for segment in without.segments)


def test_words_are_those_of_the_piece_alone(model, aligner, two_parts):
    """The second segment's audio is what the aligner was given for it."""
    segment = timed(model, aligner, two_parts).segments[-1]
    first, last = round(segment.start_s * 16000), round(segment.end_s * 16000)
    alone = aligner.align_samples(two_parts[first:last], segment.text, start_s=segment.start_s)
    assert [word.text for word in alone] == [word.text for word in segment.words]
    starts = [word.start_s for word in segment.words]
    assert starts == pytest.approx([word.start_s for word in alone], abs=1e-3)


def test_a_language_that_the_aligner_lacks_has_no_times_and_a_warning(model, aligner, two_parts):
    found = timed(model, aligner, two_parts, language="Thai")
    assert found.text
    assert all(segment.words == () for segment in found.segments)
    told = [sentence for sentence in found.warnings if "no word times" in sentence]
    assert len(told) == 1
    assert "not trained on Thai" in told[0]


def test_numbers_that_overflow_cost_the_times_and_not_the_text(
    model, aligner, two_parts, monkeypatch
):
    def overflow(*_: object) -> None:
        raise NumericError("The logits of 3 of 20 times hold a NaN.")

    monkeypatch.setattr(aligner, "classes", overflow)
    found = timed(model, aligner, two_parts)
    assert found.text == model.transcribe(two_parts, sample_rate=16000).text
    assert any("no word times: The logits of 3" in sentence for sentence in found.warnings)
