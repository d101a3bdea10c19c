"""Policy, kept encoder rows, and what comes in."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from sounds import babble
from stapes.audio import log_mel
from stapes.errors import RequestError
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.streaming import StreamPolicy
from stapes.streaming.encoding import RunningEncoder, window_frames
from stapes.streaming.intake import Intake
from stapes.streaming.pace import Pace
from stapes.streaming.utterances import Task

RATE = 16_000


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step_s": 0.01}, "step_s must lie between 0.1 and 60 s, not 0.01"),
        ({"step_s": math.nan}, "step_s"),
        ({"window_s": "8"}, "window_s"),
        ({"silence_s": True}, "silence_s"),
        ({"stall_s": 0.0}, "stall_s"),
        ({"commit_steps": 0}, "commit_steps must be a whole number >= 1, not 0"),
        ({"rollback_tokens": -1}, "rollback_tokens"),
        ({"unfixed_steps": 1.5}, "unfixed_steps"),
        ({"new_tokens": 0}, "new_tokens"),
        ({"commit": "soon"}, "commit must be one of rollback, agreement, final, not 'soon'"),
        ({"boundary_s": 13.0}, "at most half of max_utterance_s, 24 s, not 13"),
        ({"max_lag_s": 1.0}, "max_lag_s must lie between 2 and inf s"),
        ({"max_utterance_s": 1e9}, "max_utterance_s"),
        ({"max_backlog_s": 0.5}, "max_backlog_s"),
    ],
)
def test_a_policy_says_what_is_wrong(values: dict[str, object], message: str):
    with pytest.raises(RequestError, match=message):
        StreamPolicy(**values)  # type: ignore[arg-type]


def test_when_text_is_committed():
    policy = StreamPolicy()
    assert [n for n in range(1, 20) if policy.is_committing(n)] == [4, 6, 8, 10]
    every = StreamPolicy(commit_steps=1, unfixed_steps=0, max_utterance_s=8.0)
    assert [n for n in range(1, 20) if every.is_committing(n)] == [1, 2]
    assert not any(StreamPolicy(commit="final").is_committing(n) for n in range(20))


# -- encoder ---------------------------------------------------------------------------------------


def drain(generator):
    """What a generator returns, and at how many points it paused."""
    pauses = 0
    while True:
        try:
            next(generator)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


def test_kept_rows_are_those_of_the_encoder(model: Qwen3Asr):
    """While it grows, when it shrinks, and when frames change that were seen before."""
    mel = log_mel(babble(26 * RATE), 128, 800)
    running = RunningEncoder(model.encoder)
    other = mel.copy()
    other[300:] -= np.float32(0.125)
    for part in (*(mel[:n] for n in (50, 250, 799, 800, 801, 1250, 1700, 2500)), other[:1700]):
        rows, _ = drain(running.encode(part))
        assert np.array_equal(rows, model.encoder.encode(part))
    rows, _ = drain(running.encode(mel[:770]))
    assert np.array_equal(rows, model.encoder.encode(mel[:770]))


def test_finished_windows_and_chunks_are_not_computed_again(model: Qwen3Asr, monkeypatch):
    mel = log_mel(babble(20 * RATE), 128, 800)
    running = RunningEncoder(model.encoder)
    drain(running.encode(mel[:1800]))
    frames: list[int] = []
    rows: list[int] = []
    stem, body = model.encoder.stem, model.encoder.body
    monkeypatch.setattr(model.encoder, "stem", lambda x: (frames.append(len(x)), stem(x))[1])
    monkeypatch.setattr(model.encoder, "body", lambda x: (rows.append(len(x)), body(x))[1])
    drain(running.encode(mel[:1950]))
    assert frames == [100, 50]  # one whole chunk, and the rest
    assert rows == [46]  # 3.5 s of the third window
    assert window_frames(model.encoder) == 800


# -- intake ----------------------------------------------------------------------------------------


def test_what_is_taken_is_what_came():
    intake = Intake(RATE, 100.0, lambda: 0.0)
    sound = babble(10_000)
    for block in np.split(sound, [100, 100, 5_000]):
        intake.feed(block)
    taken = [intake.take(3_000) for _ in range(5)]
    assert [part.size for part in taken] == [3_000, 3_000, 3_000, 1_000, 0]
    assert np.array_equal(np.concatenate(taken), sound)


def test_what_is_too_loud_is_clipped():
    intake = Intake(RATE, 100.0, lambda: 0.0)
    intake.feed([2.0, -3.0, 0.5])
    assert intake.take(9).tolist() == [1.0, -1.0, 0.5]


def test_when_a_sample_came():
    times = iter([0.0, *np.arange(1.0, 100.0)])
    intake = Intake(RATE, 100.0, lambda: next(times))
    for _ in range(3):
        intake.feed(np.zeros(10))  # asks the clock twice: at 1, 3, 5
    assert [intake.came_s(n) for n in (1, 10, 11, 20, 30, 99)] == [1, 1, 3, 3, 5, 5]
    intake.forget(15)
    assert intake.came_s(16) == 3


def test_arrivals_in_quick_succession_take_no_memory():
    intake = Intake(RATE, 100.0, lambda: 1.0)
    for _ in range(1_000):
        intake.feed([0.0])
    assert len(intake._came) <= 2


def test_feeding_and_taking_at_the_same_time_lose_nothing():
    intake = Intake(RATE, 1000.0, lambda: 0.0)
    sound = babble(100_000)

    def feed() -> None:
        for block in np.array_split(sound, 500):
            intake.feed(block)
        intake.end()

    thread = threading.Thread(target=feed)
    thread.start()
    parts = []
    while not intake.ended or intake.waiting:
        parts.append(intake.take(333))
        intake.forget(intake.total - 100)
        intake.came_s(intake.total)
    thread.join()
    assert np.array_equal(np.concatenate(parts), sound)


# -- pace ------------------------------------------------------------------------------------------


def test_an_utterance_begins_the_count_anew():
    pace = Pace(StreamPolicy())
    assert pace.take(Task(0, 0, 1, 1, False), 9.0) is None
    assert pace.take(Task(0, 0, 1, 0, True), 9.0) is None
    assert pace.take(Task(1, 0, 1, 1, False), 9.0) is None
    assert "takes 6 s of audio, not 2" in (pace.take(Task(1, 0, 1, 4, True), 2.1) or "")
    assert pace.steps == 3


def test_audio_in_one_piece_is_no_lag():
    pace = Pace(StreamPolicy())
    assert pace.take(Task(0, 0, 1, 4, True), 1.9) is None
    assert pace.steps == 4
