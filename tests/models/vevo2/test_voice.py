"""How recordings are read, and their chromagram and pitch."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from models.vevo2.tokenizer_checkpoint import melody
from stapes.errors import AudioError, RequestError
from stapes.models.vevo2.tokenizers import pitch
from stapes.models.vevo2.tokenizers.chroma import chromagram, stretched
from stapes.models.vevo2.tokenizers.pitch import (
    f0_median,
    f0_track,
    folded_steps,
    pitch_steps,
    shifted,
)
from stapes.models.vevo2.voice import Voice, read_voice


def tone(hz: float, seconds: float = 1.0, rate: int = 24_000) -> np.ndarray:
    t = np.arange(int(seconds * rate)) / rate
    harmonics = sum(np.sin(2 * np.pi * hz * k * t) / k for k in range(1, 8))
    return (0.2 * harmonics).astype(np.float32)


def say(hz: float, seconds: float = 1.0) -> Voice:
    return Voice(f"{hz} Hz", tone(hz, seconds))


@pytest.mark.parametrize(
    ("rate", "channels", "dtype"), [(24_000, 1, "f4"), (44_100, 2, "f8"), (8_000, 1, "i2")]
)
def test_any_rate_and_channels_become_mono_at_24_khz(rate, channels, dtype):
    samples = tone(200, 1.5, rate)
    if dtype == "i2":
        samples = (samples * 2**15).astype(dtype)
    array = np.repeat(samples[np.newaxis].astype(dtype), channels, axis=0)
    voice = read_voice(array, rate)
    assert voice.samples.dtype == np.float32
    assert abs(voice.samples.size - 36_000) <= 1
    middle = slice(1000, -1000)
    expected = tone(200, 1.5)[: voice.samples.size]
    assert np.abs(voice.samples - expected)[middle].max() < 2e-3
    assert abs(voice.samples_16k.size - 24_000) <= 1
    assert np.abs(voice.samples_16k - tone(200, 1.5, 16_000))[middle].max() < 2e-3


def test_samples_at_24_khz_are_taken_as_they_are():
    """Beyond 1, too: the reference divides by no peak."""
    samples = 7 * tone(150)
    voice = read_voice(samples, 24_000)
    assert np.array_equal(voice.samples, samples)
    assert (voice.frames, voice.duration_s, voice.warnings) == (50, 1.0, ())


@pytest.mark.parametrize(("count", "frames"), [(480, 1), (959, 1), (960, 2), (24_479, 50)])
def test_frames_are_whole_runs_of_480_samples(count, frames):
    assert Voice("x", np.zeros(count, np.float32)).frames == frames


def test_less_than_a_frame_is_an_error():
    with pytest.raises(AudioError, match="The array is too short: 479 samples at 24 kHz"):
        read_voice(np.zeros(479, np.float32), 24_000)
    with pytest.raises(RequestError, match="needs its sample_rate"):
        read_voice(np.zeros(4790, np.float32))


# -- chroma ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [480, 1919, 1920, 5000, 24_000, 50_123])
def test_a_row_for_every_frame_with_its_largest_value_at_1(count):
    pytest.importorskip("librosa")
    rows = chromagram(melody(3)[:count], count // 480)
    assert (rows.shape, rows.dtype) == ((count // 480, 24), np.float32)
    assert np.allclose(rows.max(axis=1), 1)
    assert rows.min() >= 0


def test_an_octave_has_the_chroma_of_its_root_and_a_semitone_is_two_classes():
    pytest.importorskip("librosa")
    classes = [np.median(chromagram(tone(hz), 50).argmax(axis=1)) for hz in (220, 440, 233.08)]
    assert classes[0] == classes[1] == (classes[2] - 2) % 24


@pytest.mark.parametrize("samples", [np.zeros(9600), np.full(9600, 0.3), np.eye(1, 9600, 4000)[0]])
def test_what_has_no_tone_warns_of_nothing(samples):
    pytest.importorskip("librosa")
    rows = chromagram(samples.astype(np.float32), 20)
    assert np.isfinite(rows).all()


def test_missing_rows_repeat_the_last():
    pytest.importorskip("librosa")
    rows = chromagram(melody(0.1), 9)
    assert rows.shape == (9, 24)
    assert np.array_equal(rows[6:], np.repeat(rows[5:6], 3, axis=0))


def test_stretching_interpolates_between_centres():
    rows = np.repeat(np.arange(4, dtype=np.float32)[:, None], 24, axis=1)
    assert np.array_equal(stretched(rows, 1.0), rows)
    assert np.allclose(stretched(rows, 2.0)[:, 0], [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3])
    assert np.allclose(stretched(rows, 0.5)[:, 0], [0.5, 2.5])
    assert stretched(rows, 1.24).shape == (4, 24)


# -- pitch -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "timbre", "steps"),
    [
        (200, 200, 0),
        (200, 400, 12),
        (400, 200, -12),
        (100, 100 * 2 ** (13 / 12), 1),
        (100 * 2 ** (13 / 12), 100, -1),
        (100, 400, 0),
        (400, 100, 0),
        (100, 100 * 2 ** (30 / 12), 6),
        (100 * 2 ** (30 / 12), 100, -6),
        (200, 200 * 2 ** (3.4 / 12), 3),
        (200, 200 * 2 ** (-3.6 / 12), -4),
    ],
)
def test_steps_are_rounded_and_folded_beyond_an_octave(source, timbre, steps):
    assert folded_steps(source, timbre) == steps
    raw = round(12 * np.log2(timbre / source))
    assert steps == (raw % 12 if raw > 12 else raw % -12 if raw < -12 else raw)


def test_the_median_of_a_voice():
    pytest.importorskip("parselmouth")
    assert abs(f0_median(say(180)) - 180) < 1
    silence = np.zeros(12_000, np.float32)
    both = Voice("both", np.concatenate([tone(120), silence, tone(240, 0.5)]))
    assert abs(f0_median(both) - 120) < 2


def test_unvoiced_stretches_count_as_the_line_between_their_ends(monkeypatch):
    track = np.array([0, 100, 0, 0, 0, 300, 0], np.float32)
    monkeypatch.setattr(pitch, "f0_track", lambda samples: track)
    assert f0_median(say(1)) == 200  # of 100 100 150 200 250 300 300


def test_steps_between_voices():
    pytest.importorskip("parselmouth")
    low, high = say(150), say(300)
    assert pitch_steps(low, high) == 12
    assert pitch_steps(high, low, asked=0) == -12
    assert pitch_steps(low, high, same=True) == 0
    assert pitch_steps(low, high, asked=-3) == -3


def test_three_periods_of_50_hz_suffice():
    pytest.importorskip("parselmouth")
    assert f0_track(tone(200, 0.06, 16_000)).size == 1
    assert f0_track(tone(200, 0.06, 16_000)[:-1]).size == 0


@pytest.mark.parametrize("seconds", [0.02, 0.0599, 0.06, 1.0])
def test_a_recording_without_voice_has_no_pitch(seconds):
    pytest.importorskip("parselmouth")
    silent = Voice("silence", np.zeros(int(seconds * 24_000), np.float32))
    assert not f0_track(silent.samples_16k).any()
    with pytest.raises(AudioError, match=r"silence has no voiced part in \d\.\d\d s"):
        f0_median(silent)


@pytest.mark.parametrize("count", [480, 2047, 24_000])
def test_a_shift_keeps_the_length(count):
    pytest.importorskip("librosa")
    samples = tone(220)[:count]
    moved = shifted(samples, 5)
    assert (moved.shape, moved.dtype) == ((count,), np.float32)
    assert shifted(samples, 0) is samples


def test_a_shift_moves_the_pitch():
    pytest.importorskip("librosa")
    pytest.importorskip("parselmouth")
    assert abs(f0_median(Voice("up", shifted(tone(200), 7))) - 200 * 2 ** (7 / 12)) < 3
    with pytest.raises(RequestError, match="not 61"):
        shifted(tone(200), 61)


# -- the extra -------------------------------------------------------------------------------------


def test_a_missing_library_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "librosa", None)
    monkeypatch.setitem(sys.modules, "parselmouth", None)
    for call, sentence in (
        (lambda: chromagram(tone(200), 50), "The chromagram needs librosa, which cannot be"),
        (lambda: shifted(tone(200), 1), "A pitch shift needs librosa, which cannot be"),
        (lambda: f0_median(say(200)), "The estimate of a voice's pitch needs praat-parselmouth"),
    ):
        with pytest.raises(RequestError, match=sentence) as caught:
            call()
        assert "pip install 'stapes[voice]'" in str(caught.value)
