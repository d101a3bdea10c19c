"""A stream: utterances, silence, noise, pace, lag, errors, threads, asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stapes
from audio.rigged import Told, script
from models import audio8_checkpoint
from sounds import babble, noise
from stapes.audio import read_audio
from stapes.errors import AudioError, CapacityError, NumericError, RequestError
from stapes.models.qwen3_asr import Qwen3Asr
from stapes.models.transcript import Word
from stapes.streaming import StreamEvent, StreamPolicy, readers
from stapes.streaming.stream import Stream
from streaming.feeding import BRISK, RATE, ROOMY, Said, check, cut, finals, listen, make, texts

EXAMPLES = Path(__file__).parents[2] / "examples"
COUNTING = [(0.4 * i, str(i)) for i in range(1, 60)]


class Clock:
    """Says what it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def say(model: Qwen3Asr, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Lets the model say words at their time, in every utterance anew."""

    def say(words: Any = COUNTING, **options: Any) -> Said:
        said = Said(model, words, **options)
        monkeypatch.setattr(readers, "_answer", said)
        return said

    return say


def drain(stream: Stream) -> list[StreamEvent]:
    events = stream.poll()
    while stream.pending:
        events += stream.poll()
    return events


# -- utterances ------------------------------------------------------------------------------------


def test_silence_yields_nothing(tiny_en: Qwen3Asr):
    for level in (0.0, 1e-4):
        stream = stapes.stream(tiny_en)
        assert listen(stream, cut(noise(20 * RATE, level=level), RATE)) == []


def test_a_stream_without_audio_yields_nothing(model: Qwen3Asr):
    assert make(model).finish() == []
    stream = make(model, sample_rate=48_000)
    stream.feed([0.5])
    assert finals(stream.finish()) == []


def test_silence_ends_an_utterance_and_the_next_does_not_repeat_it(model: Qwen3Asr, say):
    said = say(COUNTING[:6])
    frames, samples = script((0.9, 3), (0.1, 2), (0.9, 3), (0.1, 1))
    events = listen(make(model, ROOMY, detector=Told([*frames, 0.1])), cut(babble(samples), 1_600))
    check(events)
    assert texts(events) == ["1 2 3 4 5 6", "1 2 3 4 5 6"]
    second = [forced for seconds, forced in said.asked if seconds < 1][1:]
    assert second
    assert not any(second)  # it begins with nothing of the first
    assert [event.utterance for event in finals(events)] == [0, 1]


@pytest.mark.parametrize(
    "names", [("digits-5.wav", "digits-5.wav"), ("digits-5.wav", "digits-3.wav")]
)
def test_each_utterance_is_what_it_is_alone(tiny_en: Qwen3Asr, names: tuple[str, str]):
    """Twice the same voice, then silence: kept rows and cache of the first do no harm."""
    parts = [read_audio(EXAMPLES / name).samples for name in names]
    pause = np.zeros(2 * RATE, np.float32)
    policy = StreamPolicy(silence_s=1.5)
    alone = [texts(listen(stapes.stream(tiny_en, policy=policy), [p, pause])) for p in parts]
    both = listen(
        stapes.stream(tiny_en, policy=policy),
        cut(np.concatenate([parts[0], pause, parts[1], pause, pause]), RATE),
    )
    assert texts(both) == [*alone[0], *alone[1]]
    assert len(texts(both)) == 2


def test_what_goes_on_is_cut_at_a_quiet_point(model: Qwen3Asr, say):
    say()
    sound = babble(25 * RATE)
    sound[int(9.2 * RATE) : int(9.6 * RATE)] = 0
    events = listen(make(model), cut(sound, RATE))
    check(events)
    first, second = finals(events)[:2]
    assert 9.2 < first.end_s < 9.6
    assert second.start_s == first.end_s
    assert [e.text.split()[0] for e in finals(events)] == ["1"] * len(finals(events))
    assert finals(events)[-1].end_s == 25.0


def test_nothing_is_committed_that_a_cut_could_take_away(model: Qwen3Asr, say):
    said = say()
    events = listen(make(model), cut(babble(10 * RATE), 800))
    settled = [e for e in events if e.type == "committed"][:-1]
    assert max(e.end_s for e in settled) <= BRISK.settled_s
    assert len(said.asked) > 10


def test_noise_does_not_run_away(model: Qwen3Asr):
    """Random weights never end an answer: budgets do, step by step."""
    counts: list[int] = []
    stream = make(model, on_look=lambda look: counts.append(len(look.result.token_ids)))
    events = listen(stream, cut(noise(30 * RATE), 4_000))
    check(events)
    assert max(counts) <= 32 + 16 * 10 + 6 * 20
    assert len(counts) >= 55


def test_an_endless_answer_is_left_out_and_said(model: Qwen3Asr, say, monkeypatch):
    said = say()
    word = model.tokenizer.encode(" no")
    said.instead = dict.fromkeys(range(100), word * 60)
    events = listen(make(model, StreamPolicy()), cut(babble(4 * RATE), 1_000))
    assert finals(events) == []
    assert texts(events, "notice") == [
        "0.0-4.0 s: the model repeated itself without end; it has no text."
    ]


def test_a_context_that_is_given_back_is_left_out(model: Qwen3Asr, say):
    say([(0.1, "Ada"), (0.2, "Bob"), (0.3, "Eve")])
    stream = stapes.stream(model, context="Ada, Bob, Eve", vad=False)
    events = listen(stream, cut(babble(2 * RATE), 1_000))
    assert finals(events) == []
    assert "gave back the context" in texts(events, "notice")[0]


def test_a_partial_that_proves_wrong_is_taken_back(model: Qwen3Asr, say):
    said = say([(0.2, "hm")])
    said.instead = {2: []}
    events = listen(make(model, ROOMY), cut(babble(int(1.2 * RATE)), 800))
    assert texts(events) == []
    assert texts(events, "partial") == ["hm", "hm", ""]


def test_a_forced_language_is_that_of_all_events(tiny_en: Qwen3Asr):
    samples = read_audio(EXAMPLES / "digits-5.wav").samples
    events = listen(stapes.stream(tiny_en, language="en"), cut(samples, 1_000))
    assert {event.language for event in events} == {"English"}
    assert " ".join(texts(events)) == "nine zero zero eight seven"


# -- words -----------------------------------------------------------------------------------------


def test_an_aligner_gives_the_finals_their_words(model: Qwen3Asr, say):
    say(COUNTING[:6])
    asked = []

    class Aligner:
        def align_samples(self, samples, text, *, start_s, language):
            asked.append((samples.size, text, start_s, language))
            return [Word(text, start_s, start_s + 1)]

    frames, samples = script((0.1, 1), (0.9, 3), (0.1, 2))
    stream = make(model, ROOMY, detector=Told([*frames, 0.1]), aligner=Aligner())
    (final,) = finals(listen(stream, cut(babble(samples), 1_600)))
    assert final.words == (Word(final.text, final.start_s, final.start_s + 1),)
    ((size, text, start_s, language),) = asked
    assert (text, start_s, language) == (final.text, final.start_s, "English")
    assert size == round((final.end_s - final.start_s) * RATE)


def test_words_that_cannot_be_timed_cost_no_text(model: Qwen3Asr, say):
    say()

    class Aligner:
        def align_samples(self, *args, **options):
            raise RequestError("No such language.")

    events = listen(make(model, aligner=Aligner()), [babble(RATE)])
    assert len(finals(events)) == 1
    assert "The words have no times: No such language." in texts(events, "notice")


# -- pace ------------------------------------------------------------------------------------------


def test_the_lag_is_the_time_from_the_audio_to_the_event(model: Qwen3Asr, say):
    say()
    clock = Clock()
    stream = make(model, clock=clock)
    for _ in range(20):
        stream.feed(babble(RATE // 10))
        clock.now += 0.1
    clock.now += 0.7
    events = drain(stream)
    last = [event for event in events if event.type == "partial"][-1]
    # The last block came 0.8 s ago, as far as the detector's frames reach one before that.
    assert last.end_s == 2.0 - 0.5
    assert last.lag_s == pytest.approx(0.7 + 0.1 + 0.5, abs=0.11)


def test_steps_are_left_out_when_there_is_no_time_and_said(model: Qwen3Asr, say):
    said = say()
    clock = Clock()
    stream = make(model, clock=clock)
    stream.feed(babble(3 * RATE))
    clock.now += 1.2
    events = drain(stream)
    assert [seconds for seconds, _ in said.asked] == pytest.approx([1.0, 2.0, 2.5], abs=0.1)
    assert texts(events, "notice") == [
        "The machine does not keep up: a step now takes 1 s of audio, not 0.5."
    ]
    for _ in range(80):
        stream.feed(babble(800))
        while stream.pending:
            events += stream.poll()
    assert texts(events, "notice")[1:] == ["A step takes 0.5 s of audio again."]
    assert {event.step_s for event in events if event.type == "partial"} == {0.5, 1.0}


def test_committing_steps_are_left_out_only_when_that_is_allowed(model: Qwen3Asr, say):
    said = say()
    listen(make(model), [babble(9 * RATE)], rarely=True)
    assert len(said.asked) == 9
    hasty = say()
    policy = StreamPolicy(**{**vars(BRISK), "max_lag_s": 2.0})
    events = listen(make(model, policy), [babble(9 * RATE)], rarely=True)
    check(events)
    assert len(hasty.asked) < 5
    assert texts(events) == texts(listen(make(model), [babble(9 * RATE)]))


def test_a_stall_is_said_once(model: Qwen3Asr):
    clock = Clock()
    stream = make(model, StreamPolicy(stall_s=3.0), clock=clock)
    stream.feed(babble(RATE))
    drain(stream)
    clock.now += 2.9
    assert stream.poll() == []
    clock.now += 0.6
    assert texts(stream.poll(), "notice") == ["No audio has come for 3.5 s."]
    assert stream.poll() == []
    stream.feed(babble(100))
    assert stream.poll() == []
    clock.now += 4
    assert texts(stream.poll(), "notice") == ["No audio has come for 4.0 s."]
    assert not any("No audio" in text for text in texts(stream.finish(), "notice"))


def test_too_much_that_waits_is_refused(model: Qwen3Asr):
    stream = make(model, StreamPolicy(max_backlog_s=2.0))
    stream.feed(babble(3 * RATE))
    with pytest.raises(CapacityError, match="3 s of audio wait"):
        stream.feed(babble(1))
    drain(stream)
    stream.feed(babble(1))


def test_a_poll_is_at_most_one_run(model: Qwen3Asr, monkeypatch):
    runs: list[str] = []
    for name in ("stem", "body"):
        plain = getattr(model.encoder, name)
        monkeypatch.setattr(
            model.encoder, name, lambda x, n=name, f=plain: (runs.append(n), f(x))[1]
        )
    plain_run = readers.run_rows
    monkeypatch.setattr(readers, "run_rows", lambda *a: (runs.append("rows"), plain_run(*a))[1])
    stream = make(model)
    stream.feed(babble(12 * RATE))
    stream.end()
    before = 0
    while stream.pending:
        stream.poll()
        assert len(runs) - before <= 1
        before = len(runs)
    assert {"stem", "body", "rows"} == set(runs)


def test_memory_does_not_grow(model: Qwen3Asr):
    """What a stream holds after a minute of speech is what it held after half of it."""
    stream = make(model)
    held = []
    for number, block in enumerate(cut(babble(60 * RATE), RATE // 4)):
        stream.feed(block)
        while stream.pending:
            stream.poll()
        if number % 4 == 0:
            window = stream._segmenter.window
            held.append((window.end - window.start, len(stream._intake._came)))
    seconds = [samples / RATE for samples, _ in held]
    assert max(seconds[30:]) <= BRISK.max_utterance_s + 0.5
    assert stream._reader._session.capacity <= 1024


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([np.nan], AudioError, "NaN or infinity"),
        (np.full(10, 3000.0), RequestError, "the peak is 3000"),
        (np.zeros((10, 9), np.float32), RequestError, "at most 8 channels"),
        (np.zeros((2, 2, 2), np.float32), RequestError, r"not of the shape \(2, 2, 2\)"),
        (np.zeros(3, np.complex64), RequestError, "not complex64"),
        (np.zeros(3, np.int64), RequestError, "not int64"),
    ],
)
def test_samples_that_are_none_are_refused(model: Qwen3Asr, samples, error, message):
    stream = make(model)
    with pytest.raises(error, match=message):
        stream.feed(samples)
    assert not stream.pending


def test_forms_of_samples(model: Qwen3Asr):
    """Integers and channels are what a file of them would be; the caller's buffer is its own."""
    sound = babble(2 * RATE)
    whole = (np.clip(sound, -1, 1) * 32_767).astype(np.int16)
    floats = whole.astype(np.float32) / 32_768
    forms = [whole, floats, floats.astype(np.float64), np.stack([whole, whole], axis=1)]
    events = []
    for form in forms:
        buffer = form.copy()
        stream = make(model)
        stream.feed(buffer)
        buffer[:] = 0
        events.append(finals(stream.finish()))
    assert all(each == events[0] for each in events)
    assert events[0]


def test_a_finished_stream_takes_nothing_more(model: Qwen3Asr):
    stream = make(model)
    stream.finish()
    assert stream.finish() == []
    with pytest.raises(RequestError, match="has been finished"):
        stream.feed([0.0])


def test_an_error_costs_one_look(model: Qwen3Asr, say, monkeypatch):
    said = say()

    def broken(*args: Any) -> Iterator[None]:
        raise NumericError("The logits hold a NaN.")
        yield

    stream = make(model)
    stream.feed(babble(int(1.2 * RATE)))
    monkeypatch.setattr(readers, "_answer", broken)
    with pytest.raises(NumericError):
        drain(stream)
    monkeypatch.setattr(readers, "_answer", said)
    stream.feed(babble(RATE))
    assert texts(stream.finish()) == ["1 2 3 4 5"]


def test_an_error_at_the_end_leaves_what_was_committed(model: Qwen3Asr, say, monkeypatch):
    said = say()

    def broken(*args: Any) -> Iterator[None]:
        raise NumericError("The logits hold a NaN.")
        yield

    stream = make(model, ROOMY)
    stream.feed(babble(int(4.2 * RATE)))
    events = drain(stream)
    monkeypatch.setattr(readers, "_answer", broken)
    with pytest.raises(NumericError):
        stream.finish()
    monkeypatch.setattr(readers, "_answer", said)
    events += stream.finish()
    (final,) = finals(events)
    assert final.text == "".join(texts(events, "committed")) != ""
    assert final.finish_reason == "cancelled"


def test_a_detector_that_fails_is_told_once(model: Qwen3Asr):
    class Failing:
        note: str | None = None

        def probability(self, frame: np.ndarray) -> float:
            self.note = "The speech detector failed."
            return 0.1

    stream = make(model, detector=Failing(), note="Speech is told by its energy alone.")
    assert texts(listen(stream, cut(babble(RATE), 1_000)), "notice") == [
        "Speech is told by its energy alone.",
        "The speech detector failed.",
    ]


def test_a_model_that_cannot_stream_is_refused(tmp_path: Path):
    model = stapes.load(audio8_checkpoint.write_checkpoint(tmp_path), weights="f32", threads=1)
    with pytest.raises(RequestError, match="cannot transcribe live"):
        stapes.stream(model)


def test_what_cannot_be_asked_is_refused(tiny_en: Qwen3Asr):
    with pytest.raises(RequestError, match="Elvish"):
        stapes.stream(tiny_en, language="Elvish")
    with pytest.raises(RequestError, match="multiple of the model's window of 8 s"):
        stapes.stream(tiny_en, policy=StreamPolicy(window_s=10.0))
    with pytest.raises(RequestError, match="sample_rate"):
        stapes.stream(tiny_en, sample_rate=5)
    with pytest.raises(RequestError, match="aligner must be a model of load_aligner"):
        stapes.stream(tiny_en, aligner=tiny_en)  # type: ignore[arg-type]
    with pytest.raises(CapacityError):
        stapes.stream(tiny_en, context="word " * 70_000)


# -- threads and asyncio ---------------------------------------------------------------------------


def test_one_thread_feeds_while_another_polls(model: Qwen3Asr):
    samples = babble(12 * RATE)
    stream = make(model)

    def feed() -> None:
        for block in cut(samples, 777):
            stream.feed(block)
        stream.end()

    feeder = threading.Thread(target=feed)
    feeder.start()
    events = []
    while feeder.is_alive() or stream.pending:
        events += stream.poll()
    feeder.join()
    assert finals(events) == finals(listen(make(model), [samples]))


@pytest.mark.parametrize("name", ["feed", "poll"])
def test_two_threads_at_once_are_told(model: Qwen3Asr, name: str, monkeypatch):
    stream = make(model)
    inside, leave = threading.Event(), threading.Event()

    def wait(*args: Any) -> Any:
        inside.set()
        leave.wait(10)
        return np.zeros(0, np.float32)

    monkeypatch.setattr(stream._intake, "_put" if name == "feed" else "take", wait)
    call = (lambda: stream.feed([0.0])) if name == "feed" else stream.poll
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(call)
        assert inside.wait(10)
        with pytest.raises(RequestError, match=f"Two threads {name} this stream at once"):
            call()
        leave.set()
        first.result(10)


def test_streams_share_a_model_in_one_event_loop(model: Qwen3Asr):
    """Polls of several streams in turn, in a thread of the loop: each is what it is alone."""
    sounds = [babble(5 * RATE, seed) for seed in range(3)]

    async def transcribe(samples: np.ndarray) -> list[str]:
        loop, stream = asyncio.get_running_loop(), make(model)
        events = []
        for block in cut(samples, 8_000):
            stream.feed(block)
            while stream.pending:
                events += await loop.run_in_executor(None, stream.poll)
            await asyncio.sleep(0)
        stream.end()
        while stream.pending:
            events += await loop.run_in_executor(None, stream.poll)
        return texts(events)

    async def all_of_them() -> list[list[str]]:
        return await asyncio.gather(*map(transcribe, sounds))

    alone = [texts(listen(make(model), [samples])) for samples in sounds]
    assert asyncio.run(all_of_them()) == alone
    assert len({tuple(each) for each in alone}) == 3


def test_a_stream_is_what_the_public_function_makes(tiny_en: Qwen3Asr):
    stream = stapes.stream(tiny_en)
    assert isinstance(stream, Stream)
    assert stream.policy == StreamPolicy()
