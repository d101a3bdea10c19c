"""Ten minutes of a human voice, with pauses, music and noise between: words, gaps and times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

import stapes
from stapes.models.transcript import Transcript

RATE = 16_000
SECONDS = 600
F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Said:
    """What was said, from start_s to end_s."""

    words: str
    start_s: float
    end_s: float


def music(samples: int, rng: np.random.Generator) -> F32:
    """Chords that change twice a second, with overtones, and a beat."""
    times = np.arange(samples) / RATE
    chord = rng.choice([130.8, 146.8, 164.8, 174.6, 196.0, 220.0], (samples // 8000 + 1, 3))
    tones = chord[(times * 2).astype(int)]
    phase = 2 * np.pi * np.cumsum(tones, axis=0) / RATE
    sound = sum(np.sin(k * phase).sum(axis=1) / k for k in (1, 2, 3))
    return (0.02 * sound * (1 + np.exp(-8 * (times * 2 % 1)))).astype(np.float32)


def noise(samples: int, rng: np.random.Generator) -> F32:
    """A fan: brown noise."""
    brown = np.cumsum(rng.standard_normal(samples))
    kernel = np.ones(400) / 400
    brown -= np.convolve(brown, kernel, mode="same")
    return (0.01 * brown / np.abs(brown).max()).astype(np.float32)


def silence(samples: int, rng: np.random.Generator) -> F32:
    return (1e-4 * rng.standard_normal(samples)).astype(np.float32)


@pytest.fixture(scope="module")
def recording() -> tuple[F32, list[Said]]:
    pytest.importorskip("torch", reason="training/ composes the clips")
    from training.human import MissingRecordingsError, human_clips

    try:
        clips = human_clips(200)
    except MissingRecordingsError as missing:
        pytest.skip(str(missing))
    rng, parts, said, at = np.random.default_rng(0), [], [], 0
    for number, clip in enumerate(clips):
        gap = (silence, noise, music)[number % 3](int(rng.uniform(1.5, 5) * RATE), rng)
        parts += [gap, clip.samples]
        at += gap.size
        loud = np.flatnonzero(np.abs(clip.samples) > 0.01 * np.abs(clip.samples).max())
        said.append(Said(clip.words, (at + loud[0]) / RATE, (at + loud[-1]) / RATE))
        at += clip.samples.size
        if at >= SECONDS * RATE:
            break
    return np.concatenate(parts), said


@pytest.fixture(scope="module")
def transcript(recording: tuple[F32, list[Said]]) -> Transcript:
    return stapes.load().transcribe(recording[0], sample_rate=RATE)


def test_the_words_are_right(recording: tuple[F32, list[Said]], transcript: Transcript):
    import jiwer

    _, said = recording
    assert jiwer.wer(" ".join(each.words for each in said), transcript.text) <= 0.05


def test_there_is_no_text_in_the_gaps(recording: tuple[F32, list[Said]], transcript: Transcript):
    """Every segment meets a stretch of speech, and every stretch a segment."""
    _, said = recording
    for segment in transcript.segments:
        assert any(s.start_s < segment.end_s and segment.start_s < s.end_s for s in said), segment
    for each in said:
        assert any(
            each.start_s < s.end_s and s.start_s < each.end_s for s in transcript.segments
        ), each


def test_subtitle_times_are_those_of_the_speech(
    recording: tuple[F32, list[Said]], transcript: Transcript
):
    """The segments of a stretch begin and end with it; long pauses within cut some in two.

    Where music follows at once the detector lets go late: a few ends are up to a second off.
    """
    _, said = recording
    errors = []
    for each in said:
        met = [s for s in transcript.segments if each.start_s < s.end_s and s.start_s < each.end_s]
        errors.append(abs(met[0].start_s - each.start_s))
        errors.append(abs(met[-1].end_s - each.end_s))
    assert np.percentile(errors, 95) <= 0.5
    assert max(errors) <= 1.0
