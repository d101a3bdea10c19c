"""The final text of a stream is that of the recording, however it was fed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stapes
from audio.rigged import Told, wild
from sounds import babble
from stapes.audio import log_mel, read_audio
from stapes.audio.speech import speech_detector
from stapes.decoder import GenerateOptions, generate
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.streaming import StreamPolicy
from stapes.streaming.hypothesis import Asked
from stapes.streaming.offline import transcribe_offline
from streaming.feeding import BRISK, RATE, check, cut, finals, listen, make, texts

EXAMPLES = Path(__file__).parents[2] / "examples"
BABBLE = babble(24 * RATE + 77)
POLICIES = [
    BRISK,
    StreamPolicy(
        step_s=0.7,
        commit_steps=1,
        unfixed_steps=0,
        rollback_tokens=1,
        new_tokens=4,
        commit="agreement",
        max_utterance_s=16.0,
    ),
    StreamPolicy(step_s=1.0, new_tokens=5, commit="final", max_utterance_s=11.0),
]


def digits() -> np.ndarray:
    """A human voice, with pauses: several utterances, one of them longer than a window."""
    names = ("digits-10.flac", "digits-5.wav", "digits-3.wav")
    pause = 1e-4 * np.random.default_rng(0).standard_normal(int(1.5 * RATE)).astype(np.float32)
    return np.concatenate([p for n in names for p in (read_audio(EXAMPLES / n).samples, pause)])


@pytest.fixture(scope="module")
def spoken() -> np.ndarray:
    return digits()


def offline_ids(model: Qwen3Asr, samples: np.ndarray, policy: StreamPolicy, detector=None):
    answers = transcribe_offline(model, samples, Asked(policy), detector)
    return [tuple(each.forced_ids) for each in answers if each.committed_text]


# -- a random model, for which every bit shows -----------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES, ids=["rollback", "agreement", "final"])
@pytest.mark.parametrize("size", [160, 5_333, 40_000, BABBLE.size])
def test_any_chunking_gives_the_ids_of_the_recording(
    model: Qwen3Asr, policy: StreamPolicy, size: int
):
    events = listen(make(model, policy), cut(BABBLE, size))
    check(events)
    ids = [event.token_ids for event in finals(events)]
    assert ids == offline_ids(model, BABBLE, policy)
    assert len(ids) > 1
    assert len({token for answer in ids for token in answer}) > 40  # the test could fail


def test_sample_by_sample(model: Qwen3Asr):
    samples = BABBLE[: int(2.6 * RATE)]
    events = listen(make(model), cut(samples, 1))
    assert [e.token_ids for e in finals(events)] == offline_ids(model, samples, BRISK)
    assert texts(events, "committed")


@settings(max_examples=12)
@given(
    st.lists(st.integers(0, 3 * RATE), max_size=12),
    st.integers(RATE // 10, BABBLE.size),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_with_a_wild_detector_too(model: Qwen3Asr, sizes, length, seed, rarely):
    samples = BABBLE[:length]
    told = wild(samples.size, seed)
    events = listen(make(model, detector=Told(told)), cut(samples, sizes), rarely)
    check(events)
    ids = [event.token_ids for event in finals(events)]
    assert ids == offline_ids(model, samples, BRISK, Told(told))


def test_what_is_kept_changes_nothing(model: Qwen3Asr):
    """Every event but its lag: partials too, since the same looks are taken."""
    kept = listen(make(model), cut(BABBLE, 4_000))
    cold = listen(make(model, reuse=False), cut(BABBLE, 4_000))
    assert kept == cold
    assert texts(kept, "partial")


def test_what_is_kept_and_guessed_saves_work(model: Qwen3Asr):
    looks = {}
    policy = StreamPolicy(step_s=1.0, new_tokens=4)
    for reuse in (True, False):
        found = looks.setdefault(reuse, [])
        listen(make(model, policy, reuse=reuse, on_look=found.append), cut(BABBLE, 4_000))
    assert len(looks[True]) == len(looks[False])
    reused = sum(look.result.reused_tokens for look in looks[True])
    assert reused > 0.3 * sum(look.result.prompt_tokens for look in looks[True])
    assert not any(look.result.reused_tokens for look in looks[False])
    assert sum(look.result.draft_accepted for look in looks[True]) > 0


def test_an_utterance_that_is_committed_at_its_end_is_one_answer(model: Qwen3Asr):
    """Nothing of the stream is left in it: one prompt, one answer, as for a recording."""
    policy = StreamPolicy(step_s=1.0, commit="final", max_utterance_s=60.0, new_tokens=5)
    samples = BABBLE[: 20 * RATE]
    (final,) = finals(listen(make(model, policy), cut(samples, 3_000)))
    mel = log_mel(samples, 128, 800)
    prompt = model.build_prompt(model.encoder.encode(mel), "", None)
    options = GenerateOptions(32 + 16 * 20, loop_detection=True)
    result = generate(model.decoder.new_session(), prompt, options)
    assert final.token_ids == result.token_ids


def test_other_rates_do_not_depend_on_the_cuts_either(model: Qwen3Asr):
    samples = babble(9 * 44_100, seed=3)
    at_once = listen(make(model, sample_rate=44_100), [samples])
    bit_by_bit = listen(make(model, sample_rate=44_100), cut(samples, 1_111))
    assert finals(at_once) == finals(bit_by_bit)
    assert finals(at_once)


# -- a human voice ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [160, 5_328, 10**9])
@pytest.mark.parametrize("rollback", [1, 5])
def test_a_voice_is_understood_however_it_is_fed(
    tiny_en: Qwen3Asr, spoken: np.ndarray, size: int, rollback: int
):
    policy = StreamPolicy(rollback_tokens=rollback, unfixed_steps=1)
    stream = stapes.stream(tiny_en, policy=policy)
    events = listen(stream, cut(spoken, size))
    check(events)
    detector = speech_detector()[0]
    assert [e.token_ids for e in finals(events)] == offline_ids(tiny_en, spoken, policy, detector)
    expected = (
        "four four one nine seven nine zero seven two five nine zero zero eight seven four five "
        "seven"
    )
    assert " ".join(texts(events)) == expected
    assert {event.language for event in finals(events)} == {"English"}


def test_what_is_committed_along_the_way_is_what_the_whole_says(
    tiny_en: Qwen3Asr, spoken: np.ndarray
):
    """A digit is a token: two hypotheses must agree, or five of them wait."""
    policies = (
        StreamPolicy(),
        StreamPolicy(commit="agreement", commit_steps=1, unfixed_steps=0, rollback_tokens=1),
        StreamPolicy(commit="final"),
    )
    said = [listen(stapes.stream(tiny_en, policy=p), [spoken]) for p in policies]
    assert texts(said[0]) == texts(said[1]) == texts(said[2])
    assert len(texts(said[1], "committed")) > len(texts(said[1]))  # something was settled early


@settings(max_examples=6)
@given(st.lists(st.integers(1, RATE), min_size=1, max_size=8), st.integers(0, 2 * RATE))
def test_a_voice_in_blocks_of_any_sizes(tiny_en: Qwen3Asr, spoken: np.ndarray, sizes, start: int):
    samples = spoken[start : start + 6 * RATE]
    events = listen(stapes.stream(tiny_en, policy=BRISK), cut(samples, sizes * 40))
    check(events)
    detector = speech_detector()[0]
    assert [e.token_ids for e in finals(events)] == offline_ids(tiny_en, samples, BRISK, detector)
    assert finals(events)


def test_a_voice_sample_by_sample(tiny_en: Qwen3Asr):
    samples = read_audio(EXAMPLES / "digits-3.wav").samples[: 2 * RATE]
    events = listen(stapes.stream(tiny_en, policy=BRISK), cut(samples, 1))
    assert finals(events) == finals(listen(stapes.stream(tiny_en, policy=BRISK), [samples]))
    assert texts(events)[0] == "four"
