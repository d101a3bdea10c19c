"""The worker: right answers side by side, fair, bounded, and none suffers from another."""

from __future__ import annotations

import io
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from server.sounds_for import samples, wav
from server.told import EXAMPLES, EXPECTED, LIMITS, Told, transcribe, write
from stapes.errors import AudioError, CapacityError, RequestError
from stapes.models.qwen_text import TextOptions
from stapes.options import TranscribeOptions
from stapes.server.scheduling import (
    BusyError,
    CallTask,
    Finished,
    LiveEvent,
    LiveTask,
    Task,
    TranscriptionTask,
    Update,
)

LONG = "digits-10.flac"


def lane_is_empty(worker, name: str) -> bool:
    lane = worker.lanes[name]
    return lane.waiting == lane.running == len(lane.batch) == 0


def until(condition, seconds: float = 10) -> None:
    ends = time.perf_counter() + seconds
    while not condition():
        assert time.perf_counter() < ends
        time.sleep(0.005)


def test_recordings_and_chats_side_by_side_are_what_they_are_alone(make_worker, speech, text):
    worker = make_worker()
    prompts = [f"The {n} is" for n in range(6)]
    asked = TextOptions(max_new_tokens=12)
    recordings = [(name, *transcribe(worker, speech, name)) for name in [*EXPECTED] * 4]
    answers = [(prompt, *write(worker, text, prompt, asked)) for prompt in prompts]
    for name, told, place in recordings:
        assert told.result().transcript.text == EXPECTED[name]
        assert told.times_finished == 1
        place.close()
    for prompt, told, place in answers:
        alone = text.generate(prompt, max_new_tokens=12)
        assert told.result().token_ids == alone.token_ids
        assert "".join(told.updates) == alone.text == told.result().text
        place.close()
    assert worker.places_taken == 0
    assert lane_is_empty(worker, speech.name)


def test_a_transcript_is_the_one_that_the_model_gives(make_worker, speech):
    told, _ = transcribe(make_worker(), speech, LONG, chunk_seconds=2.0, context="digits")
    alone = speech.transcribe(EXAMPLES / LONG, chunk_seconds=2.0, context="digits")
    assert told.result().transcript == alone
    assert len(told.updates) > 1
    assert [piece.answer.text for piece in told.updates if piece.answer.text] == [
        segment.text for segment in alone.segments
    ]


def test_slots_bound_what_runs_and_the_queue_what_waits(make_worker, speech):
    worker = make_worker(slots=2, max_queue=3)
    stopped = threading.Event()
    _, holding = hold(worker, speech, stopped)
    places = [worker.reserve(speech.name) for _ in range(4)]
    with pytest.raises(BusyError, match="2 requests run and 3 wait") as busy:
        worker.reserve(speech.name)
    assert busy.value.retry_s > 0
    places[0].close()
    places[0].close()  # twice is once
    worker.reserve(speech.name).close()
    stopped.set()
    for place in [*places, holding]:
        place.close()
    until(lambda: worker.places_taken == 0)


def hold(worker, model, event: threading.Event) -> tuple[Told, object]:
    """Let the worker wait for an event, so that a test can arrange what comes next."""
    entered, told = threading.Event(), Told()

    def wait() -> str:
        entered.set()
        assert event.wait(20)
        return "went on"

    place = worker.reserve(model.name)
    place.submit(CallTask(told, wait))
    assert entered.wait(20)
    return told, place


def test_short_requests_do_not_wait_for_a_long_one(make_worker, speech):
    """A long recording takes the slots that are free, never those that others need."""
    worker = make_worker(slots=2)
    many = np.tile(samples(LONG), 12)
    done: list[str] = []
    long_one, long_place = transcribe(
        worker, speech, wav(many), Told(lambda _: done.append("long")), chunk_seconds=3.0
    )
    long_one.wait_for_first()
    short, short_place = transcribe(worker, speech, "digits-3.wav", Told())
    assert short.result().transcript.text == EXPECTED["digits-3.wav"]
    assert long_one.finished is None
    assert long_one.result().transcript.text
    long_place.close()
    short_place.close()


def test_leaving_frees_the_place_before_the_next_run(make_worker, speech):
    worker = make_worker(slots=1)
    lane = worker.lanes[speech.name]
    left_at: list[int] = []
    ended_at: list[int] = []

    class Leaving(Told):
        """Leaves with the first piece, in the worker's thread, and counts runs."""

        def __call__(self, what) -> None:
            super().__call__(what)
            (ended_at if isinstance(what, Finished) else left_at).append(lane.steps)
            if isinstance(what, Update):
                place.close()

    file = wav(np.tile(samples(LONG), 30))
    place = worker.reserve(speech.name)
    told = Leaving()
    options = TranscribeOptions(chunk_seconds=3.0)
    place.submit(TranscriptionTask(told, speech, file, options, None, LIMITS))
    next_one, next_place = transcribe(worker, speech, "digits-3.wav")
    assert told.result() is None
    assert left_at == ended_at
    assert next_one.result().transcript.text == EXPECTED["digits-3.wav"]
    next_place.close()
    assert len(lane.sessions) <= lane.slots
    until(lambda: file.closed)
    assert lane_is_empty(worker, speech.name)


def test_leaving_while_waiting(make_worker, speech):
    worker = make_worker(slots=1)
    event = threading.Event()
    _, holding = hold(worker, speech, event)
    file = wav(samples("digits-3.wav"))
    told, place = transcribe(worker, speech, file)
    place.close()
    event.set()
    assert told.result() is None
    assert file.closed
    holding.close()


@pytest.mark.parametrize("times", [10])
def test_many_that_leave_do_not_harm_the_next(make_worker, speech, times):
    worker = make_worker(slots=2)
    for _ in range(times):
        told, place = transcribe(worker, speech, LONG, chunk_seconds=2.0)
        told.wait_for_first()
        place.close()
        told.result()
    told, place = transcribe(worker, speech, LONG)
    assert told.result().transcript.text == EXPECTED[LONG]
    place.close()
    assert worker.places_taken == 0
    until(lambda: not [t for t in threading.enumerate() if t.name == "stapes-reader"])


def test_one_that_fails_does_not_harm_the_others(make_worker, speech, text):
    worker = make_worker()
    good, _ = transcribe(worker, speech, LONG)
    noise, _ = transcribe(worker, speech, io.BytesIO(b"no recording at all" * 100))
    long_context, _ = transcribe(worker, speech, LONG, context="word " * 200_000)
    wrong, _ = transcribe(worker, speech, LONG)
    too_long, _ = write(worker, text, "a" * 30_000, TextOptions())
    with pytest.raises(AudioError):
        noise.result()
    with pytest.raises(CapacityError):
        long_context.result()
    with pytest.raises((CapacityError, RequestError)):
        too_long.result()
    assert good.result().transcript.text == wrong.result().transcript.text == EXPECTED[LONG]


class Broken(Task):
    """Does wrong at one of the places at which a task can."""

    running, done = 0, False

    def __init__(self, tell, where: str) -> None:
        super().__init__(tell)
        self.where = where

    def _at(self, where: str):
        if where == self.where:
            raise ValueError(f"broken in {where}")

    def begin(self, lane):
        self._at("begin")

    def work(self, may_add):
        self._at("work")
        return False

    def owns(self, generation):
        return False

    def take(self, generation):
        pass

    def result(self):
        self._at("result")

    def close(self):
        self._at("close")


@pytest.mark.parametrize("where", ["begin", "work", "result", "close"])
def test_a_task_that_is_broken_ends_alone(make_worker, speech, where):
    worker, told = make_worker(), Told()
    task = Broken(told, where)
    task.__class__ = type("Done", (Broken,), {"done": where in ("result", "close")})
    place = worker.reserve(speech.name)
    place.submit(task)
    good, _ = transcribe(worker, speech, "digits-3.wav")
    with pytest.raises(ValueError, match=f"broken in {where}"):
        told.result()
    assert told.times_finished == 1
    assert good.result().transcript.text == EXPECTED["digits-3.wav"]


def test_the_clients_words_end_an_answer(make_worker, text):
    worker = make_worker()
    asked = TextOptions(max_new_tokens=40)
    whole = text.generate("The", max_new_tokens=40).text
    stop = whole[10:13]
    told, place = write(worker, text, "The", asked, stops=[stop, "never in the text"])
    answer = told.result()
    assert answer.finish_reason == "stop"
    assert answer.text == whole[: whole.find(stop)] == "".join(told.updates)
    place.close()


def test_a_chat_that_goes_on_is_not_read_again(make_worker, text):
    worker, asked = make_worker(), TextOptions(max_new_tokens=4)
    first = "one two three four five six seven eight nine ten "
    told, place = write(worker, text, first, asked)
    told.result()
    place.close()
    told, place = write(worker, text, first + "and more", asked)
    assert told.result().tokens.reused > 5
    assert told.result().token_ids == text.generate(first + "and more", max_new_tokens=4).token_ids
    place.close()


def test_a_prompt_does_not_stop_the_others_for_long(make_worker, text, monkeypatch):
    """While a long prompt is read, each run has at most so many rows."""
    from stapes.decoder import batch
    from stapes.server.scheduling.lane import SHARED_ROWS

    rows: list[tuple[int, int]] = []
    real = batch.run_rows

    def counting(parts, want):
        rows.append((len(parts), sum(part.ids.size for part in parts)))
        return real(parts, want)

    monkeypatch.setattr(batch, "run_rows", counting)
    worker = make_worker()
    first, _ = write(worker, text, "The", TextOptions(max_new_tokens=300))
    first.wait_for_first()
    second, _ = write(worker, text, "word " * 400, TextOptions(max_new_tokens=2))
    second.result()
    first.result()
    assert max(count for parts, count in rows if parts > 1) == SHARED_ROWS


def test_draining(make_worker, speech):
    worker = make_worker()
    told, place = transcribe(worker, speech, LONG)
    worker.drain()
    with pytest.raises(BusyError, match="stopping"):
        worker.reserve(speech.name)
    assert told.result().transcript.text == EXPECTED[LONG]
    place.close()
    assert worker.places_taken == 0


def test_stopping_ends_what_is_under_way(make_worker, speech):
    worker = make_worker()
    told, _ = transcribe(worker, speech, wav(np.tile(samples(LONG), 30)))
    worker.stop()
    with pytest.raises(BusyError, match="stopped"):
        told.result()


def test_a_ping_is_answered_between_runs_only(make_worker, speech):
    worker = make_worker()
    assert worker.ping(20) is not None
    event = threading.Event()
    _, place = hold(worker, speech, event)
    assert worker.ping(0.05) is None
    event.set()
    assert worker.ping(20) is not None
    place.close()


class Echo:
    """A live stream that looks at a second at a time and reports how many samples it has heard."""

    waits = False

    def __init__(self, batch) -> None:
        self.fed = self.count = 0
        self.ended = self.final = False

    @property
    def waiting_s(self) -> float:
        return (self.fed - self.count) / 16_000

    @property
    def pending(self) -> bool:
        return self.fed > self.count or (self.ended and not self.final)

    def feed(self, samples) -> None:
        assert samples.dtype == np.float32
        self.fed += samples.size

    def end(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.final = True

    def poll(self):
        self.count = min(self.fed, self.count + 16_000)
        self.final = self.ended and self.count == self.fed
        kind = "final" if self.final else "partial"
        return [LiveEvent(kind, str(self.count), 0.0, self.count / 16_000)]


def test_live_streams_run_beside_everything_and_have_a_limit_of_their_own(make_worker, speech):
    worker = make_worker(slots=1, max_queue=0, max_streams=2)
    recording, recording_place = transcribe(worker, speech, LONG)
    streams = []
    for _ in range(2):
        place, told = worker.reserve(speech.name, live=True), Told()
        task = LiveTask(told, Echo, 2**20)
        place.submit(task)
        streams.append((task, told, place))
    with pytest.raises(BusyError, match="2 live streams"):
        worker.reserve(speech.name, live=True)
    for number, (task, _, _) in enumerate(streams):
        for _ in range(5):
            task.push(np.zeros(20_000 + number, np.float32))
        task.end()
    for number, (task, told, place) in enumerate(streams):
        told.result()
        total = 5 * (20_000 + number)
        last = replace(told.updates[-1], lag_s=0.0)
        assert last == LiveEvent("final", str(total), 0.0, total / 16_000)
        counts = [int(event.text) for event in told.updates]
        assert counts == sorted(counts)
        assert max(np.diff(counts)) <= 16_000
        assert task.behind_s == 0
        place.close()
    assert recording.result().transcript.text == EXPECTED[LONG]
    recording_place.close()
    assert worker.places_taken == 0
