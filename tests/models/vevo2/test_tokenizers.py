"""Recordings to codes: lengths, what codes depend on, what is shared, and the limit of 30 s."""

from __future__ import annotations

import numpy as np
import pytest

from models.vevo2.tokenizer_checkpoint import (
    CONTENT_STYLE,
    PROSODY,
    WHISPER,
    load_all,
    melody,
    write_all,
)
from stapes.errors import NumericError, RequestError
from stapes.graph import Engine, ReferenceExecutor
from stapes.models.vevo2.tokenizers import tokenizer as module
from stapes.models.vevo2.tokenizers.coco import CocoEncoder
from stapes.models.vevo2.tokenizers.coco_weights import read_coco, spec_from_tensors
from stapes.models.vevo2.tokenizers.load import Tokenizers, load_tokenizers
from stapes.models.vevo2.tokenizers.tokenizer import VoiceFeatures, WhisperFeatures
from stapes.models.vevo2.voice import Voice
from stapes.tensors import open_safetensors
from stapes.weights import CheckpointReader, MatrixPacker

pytest.importorskip("librosa")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    return load_all(tmp_path_factory.mktemp("vevo2"))


def voice(seconds: float, seed: int = 0) -> Voice:
    return Voice("a melody", melody(seconds, seed=seed))


def random_rows(rows: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 5000])
def test_a_code_for_every_four_and_every_eight_frames_rounded_up(tokenizers, frames):
    chroma, whisper = random_rows(frames, 24), random_rows(frames, WHISPER.width)
    content_style = tokenizers.content_style.coco.codes(chroma, whisper)
    prosody = tokenizers.prosody.coco.codes(chroma)
    assert (content_style.shape, prosody.shape) == ((-(-frames // 4),), (-(-frames // 8),))
    assert content_style.dtype == prosody.dtype == np.int32
    assert 0 <= content_style.min() <= content_style.max() < CONTENT_STYLE.codebook
    assert 0 <= prosody.min() <= prosody.max() < PROSODY.codebook


def test_codes_change_along_a_recording_and_with_it(tokenizers):
    first, second = voice(4.01), voice(4.01, seed=1)
    for tokenizer, count in ((tokenizers.content_style, 50), (tokenizers.prosody, 25)):
        codes = tokenizer.codes(first)
        assert codes.shape == (count,)
        assert len(set(codes.tolist())) > 5
        assert (codes[1:] != codes[:-1]).mean() > 0.5
        assert (codes != tokenizer.codes(second)).mean() > 0.5
        assert np.array_equal(codes, tokenizer.codes(first))


def test_features_are_computed_once_for_both(tokenizers, monkeypatch):
    calls = []
    of = WhisperFeatures.of
    monkeypatch.setattr(WhisperFeatures, "of", lambda *a: calls.append("whisper") or of(*a))
    chromagram = module.chromagram
    monkeypatch.setattr(module, "chromagram", lambda *a: calls.append("chroma") or chromagram(*a))
    features = VoiceFeatures(voice(1.5))
    content_style = tokenizers.content_style.codes(features)
    prosody = tokenizers.prosody.codes(features)
    assert np.array_equal(tokenizers.content_style.codes(features), content_style)
    assert sorted(calls) == ["chroma", "whisper"]
    shifted = features.shifted_by(3)
    assert (tokenizers.prosody.codes(shifted) != prosody).any()
    tokenizers.content_style.codes(shifted)
    assert sorted(calls) == ["chroma", "chroma", "whisper"]
    assert np.array_equal(tokenizers.prosody.codes(voice(1.5)), prosody)


def test_prosody_needs_no_whisper_and_content_style_both(tokenizers):
    rows, width = 40, WHISPER.width
    coco = tokenizers.content_style.coco
    codes = coco.codes(random_rows(rows, 24), random_rows(rows, width))
    assert (codes != coco.codes(random_rows(rows, 24, 1), random_rows(rows, width))).any()
    assert (codes != coco.codes(random_rows(rows, 24), random_rows(rows, width, 1))).any()
    with pytest.raises(ValueError, match="inputs are"):
        coco.codes(random_rows(rows, 24))


def test_a_target_duration_stretches_the_prosody(tokenizers):
    recording = voice(2.0)
    assert tokenizers.prosody.codes(recording, 3.0).shape == (-(-150 // 8),)
    assert tokenizers.prosody.codes(recording, 1.0).shape == (-(-50 // 8),)
    assert np.array_equal(
        tokenizers.prosody.codes(recording, 2.0), tokenizers.prosody.codes(recording)
    )
    for seconds in (0.0, -1.0, float("nan"), float("inf"), 1e-4):
        with pytest.raises(RequestError, match="100 frames cannot be stretched"):
            tokenizers.prosody.codes(recording, seconds)


def test_past_30_s_whisper_repeats_its_last_row(tokenizers):
    whisper = tokenizers.content_style.whisper
    long, cut = voice(32.5), Voice("cut", melody(32.5)[: 30 * 24_000])
    features = whisper.of(long)
    assert features.shape == (1625, WHISPER.width)
    assert np.array_equal(features[1500:], np.repeat(features[1499:1500], 125, axis=0))
    # the two resampled signals differ in the last milliseconds alone
    assert np.abs(features[:1500] - whisper.of(cut)).max() < 0.05
    assert tokenizers.content_style.codes(long).shape == (-(-1625 // 4),)
    assert tokenizers.content_style.whisper_seconds == 30.0
    (warning,) = tokenizers.content_style.warnings(long)
    assert warning.startswith("The recording lasts 32.5 s, of which Whisper hears the first 30;")
    assert tokenizers.content_style.warnings(cut) == ()


def test_what_follows_30_s_does_not_change_whisper(tokenizers):
    whisper, samples = tokenizers.content_style.whisper, melody(33.0)
    changed = samples.copy()
    changed[31 * 24_000 :] = 0
    features = [whisper.of(Voice("a", x))[:1500] for x in (samples, changed)]
    assert np.array_equal(*features)


def test_silence_has_codes(tokenizers):
    silent = Voice("silence", np.zeros(24_000, np.float32))
    assert tokenizers.content_style.codes(silent).shape == (13,)
    assert tokenizers.prosody.codes(silent).shape == (7,)


def test_values_that_are_not_finite_are_an_error(tokenizers):
    chroma = random_rows(20, 24)
    chroma[7, 3] = np.nan
    with pytest.raises(NumericError, match="not finite"):
        tokenizers.prosody.coco.codes(chroma)


def test_the_plans_are_those_of_the_reference(tmp_path, tokenizers):
    """The same codes from NumPy's executor, whose ops are written to be obviously correct."""
    with open_safetensors(write_all(tmp_path).content_style) as store:
        spec = spec_from_tensors(store, "here")
        weights = read_coco(CheckpointReader(store, MatrixPacker(Engine(1), "f32")), spec)
    inputs = random_rows(77, 24), random_rows(77, WHISPER.width)
    expected, rows = CocoEncoder(spec, weights, ReferenceExecutor).encode(*inputs)
    codes, projected = tokenizers.content_style.coco.encode(*inputs)
    assert np.allclose(projected, rows, rtol=1e-4, atol=1e-5)
    assert np.array_equal(codes, expected)


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads_gives_the_same_bits(tmp_path, threads, tokenizers):
    other = load_tokenizers(write_all(tmp_path), Engine(threads))
    features = VoiceFeatures(voice(1.0))
    whisper = features.whisper(tokenizers.content_style.whisper)
    assert np.array_equal(other.content_style.whisper.of(features.voice), whisper)
    expected = tokenizers.content_style.coco.encode(features.chroma, whisper)
    found = other.content_style.coco.encode(features.chroma, whisper)
    assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("weights", ["bf16", "q8"])
def test_other_formats_change_few_codes(tmp_path, weights, tokenizers):
    """Random tokenizers have many near ties, so this is a bound on blunders, not on quality."""
    other = load_tokenizers(write_all(tmp_path), Engine(2), weights)
    features = VoiceFeatures(voice(8.0))
    for name in ("content_style", "prosody"):
        codes = getattr(tokenizers, name).codes(features)
        assert (getattr(other, name).codes(features) == codes).mean() > 0.8
