"""The bundled model: real recordings of a human voice, and the right words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import stapes

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = json.loads((EXAMPLES / "expected.json").read_text("utf-8"))

#: Of 1,083 words; the model card has the whole table.
CLIPS, MOST_PERCENT = 200, 5.0


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("weights", ["q8", "f32"])
def test_the_examples_are_heard_right(name, weights):
    transcript = stapes.load(weights=weights).transcribe(EXAMPLES / name)
    assert transcript.text == EXPECTED[name]
    assert transcript.language == "English"
    assert transcript.finish_reason == "stop"
    assert not transcript.warnings


def test_the_language_can_be_forced_and_a_context_does_no_harm():
    name, text = next(iter(EXPECTED.items()))
    model = stapes.load()
    assert model.transcribe(EXAMPLES / name, language="en").text == text
    assert model.transcribe(EXAMPLES / name, context="Ada Lovelace, extension").text == text


def test_a_text_that_was_cut_to_nothing_is_not_called_no_speech():
    transcript = stapes.load("tiny-en").transcribe(EXAMPLES / "digits-3.wav", max_new_tokens=1)
    assert (transcript.text, transcript.truncated) == ("", True)
    (warning,) = transcript.warnings
    assert "cut short after 1 token" in warning


def test_silence_is_empty_text_without_a_language():
    transcript = stapes.load().transcribe(np.zeros(48_000, np.float32), sample_rate=16_000)
    assert (transcript.text, transcript.language) == ("", None)
    assert transcript.duration_s == 3.0


def word_error_percent(said: list[str], heard: list[str]) -> float:
    import jiwer

    return 100 * float(jiwer.wer(said, heard))


@pytest.fixture(scope="module")
def human():
    pytest.importorskip("torch", reason="training/ composes the clips")
    from training.human import MissingRecordingsError, human_clips

    try:
        return human_clips(CLIPS)
    except MissingRecordingsError as missing:
        pytest.skip(str(missing))


def heard_by(weights: str, clips) -> list[str]:
    model = stapes.load(weights=weights)
    return [model.transcribe(clip.samples, sample_rate=16_000).text for clip in clips]


def test_word_error_rate_on_a_human_voice_and_the_same_in_q8(human):
    said = [clip.words for clip in human]
    exact = word_error_percent(said, heard_by("f32", human))
    quantised = word_error_percent(said, heard_by("q8", human))
    assert exact <= MOST_PERCENT
    one_string = 100 * 3 / sum(len(words.split()) for words in said)  # three words
    assert abs(quantised - exact) <= one_string
