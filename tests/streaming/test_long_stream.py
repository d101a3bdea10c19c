"""A hundred seconds of a human voice, with pauses, music and noise between, while it is spoken."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import stapes
from models.test_long_recording import Said, music, noise, silence
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.streaming import StreamEvent, StreamPolicy
from streaming.feeding import RATE, check, cut, finals, listen, texts

SECONDS = 100
F32 = NDArray[np.float32]


@pytest.fixture(scope="module")
def spoken() -> tuple[F32, list[Said]]:
    pytest.importorskip("torch", reason="training/ composes the clips")
    from training.human import MissingRecordingsError, human_clips

    try:
        clips = human_clips(60)
    except MissingRecordingsError as missing:
        pytest.skip(str(missing))
    rng, parts, said, at = np.random.default_rng(0), [], [], 0
    for number, clip in enumerate(clips):
        gap = (silence, noise, music)[number % 3](int(rng.uniform(1.5, 5) * RATE), rng)
        parts += [gap, clip.samples]
        at += gap.size
        said.append(Said(clip.words, at / RATE, (at + clip.samples.size) / RATE))
        at += clip.samples.size
        if at >= SECONDS * RATE:
            break
    return np.concatenate(parts), said


@pytest.fixture(scope="module")
def heard(tiny_en: Qwen3Asr, spoken: tuple[F32, list[Said]]) -> list[StreamEvent]:
    return listen(stapes.stream(tiny_en), cut(spoken[0], RATE // 3))


def test_the_words_are_right(spoken: tuple[F32, list[Said]], heard: list[StreamEvent]):
    import jiwer

    check(heard)
    said = " ".join(each.words for each in spoken[1])
    assert jiwer.wer(said, " ".join(texts(heard))) <= 0.06


def test_there_is_no_text_in_the_gaps(spoken: tuple[F32, list[Said]], heard: list[StreamEvent]):
    for event in finals(heard):
        assert any(s.start_s < event.end_s and event.start_s < s.end_s for s in spoken[1]), event


def test_committing_early_costs_hardly_a_word(
    tiny_en: Qwen3Asr, spoken: tuple[F32, list[Said]], heard: list[StreamEvent]
):
    import jiwer

    late = listen(stapes.stream(tiny_en, policy=StreamPolicy(commit="final")), [spoken[0]])
    assert jiwer.wer(" ".join(texts(late)), " ".join(texts(heard))) <= 0.01
