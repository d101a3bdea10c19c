"""Live streams over WebSocket."""

from __future__ import annotations

import json
import struct
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from socket import SHUT_RD, SHUT_RDWR, SO_LINGER, SOL_SOCKET

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from aligner_checkpoints import write_aligner
from server.serving import serving
from server.sounds_for import samples, wav
from server.test_status import figures
from server.test_worker import until
from stapes.cli.serve import Wanted, _loaded
from stapes.errors import RequestError
from stapes.options import RuntimeOptions
from stapes.server.connections import HttpProtocol
from stapes.server.scheduling import LiveEvent
from stapes.server.served import Served

RATE = 16_000


@dataclass
class Fake:
    """A live stream that says what it heard: each half second is a word."""

    language: str | None
    context: str
    heard: list[np.ndarray] = field(default_factory=list)
    told: int = 0
    slow_s: float = 0.0
    ended: bool = False
    final: bool = False
    threads: set[str] = field(default_factory=set)
    waits: bool = False
    closed: bool = False
    quiet: bool = False  # it hears no words

    def close(self) -> None:
        self.closed = True

    def feed(self, samples) -> None:
        self.threads.add(threading.current_thread().name)
        self.heard.append(samples)
        if self.context == "refuse":
            raise RequestError("The stream is refused.")
        if self.context == "break":
            raise ZeroDivisionError

    def end(self) -> None:
        self.ended = True

    @property
    def samples(self) -> np.ndarray:
        return np.concatenate(self.heard) if self.heard else np.zeros(0, np.float32)

    @property
    def waiting_s(self) -> float:
        return max(0.0, sum(part.size for part in self.heard) / RATE - self.told / 2)

    @property
    def pending(self) -> bool:
        return self.waiting_s >= 0.5 or (self.ended and not self.final)

    def poll(self):
        time.sleep(self.slow_s)
        if self.waiting_s >= 0.5:
            start = self.told / 2
            self.told += 1
            text = f"w{self.told - 1}"
            if self.quiet:
                return []
            return [LiveEvent("committed", text, start, start + 0.5, self.language, 0.01234)]
        self.final = True
        size = self.samples.size
        return [LiveEvent("final", str(size), 0.0, size / RATE)]


class Factory:
    def __init__(self, **options) -> None:
        self.made: list[Fake] = []
        self.options = options

    def __call__(self, model, language, context, batch):
        self.made.append(Fake(language, context, **self.options))
        return self.made[-1]


@pytest.fixture(scope="module")
def factory() -> Factory:
    return Factory()


@pytest.fixture(scope="module")
def live(speech, factory):
    with serving(Served({"tiny-en": speech}, open_stream=factory), max_streams=8) as running:
        yield running


def open_socket(running, query: str = "", **options):
    url = running.url.replace("http", "ws") + "/v1/audio/stream" + query
    return connect(url, proxy=None, **options)


def pcm(values: np.ndarray) -> bytes:
    return (np.clip(values, -1, 1) * 32767).astype("<i2").tobytes()


def tone(seconds: float, rate: int = RATE) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * 440 * np.arange(int(seconds * rate)) / rate)).astype("f4")


def rest(socket) -> list[dict]:
    """All messages to the end of the connection."""
    messages = []
    try:
        while True:
            messages.append(json.loads(socket.recv(timeout=20)))
    except ConnectionClosed:
        return messages


def test_a_stream(live, factory):
    sound = tone(2.2)
    with open_socket(live, "?language=en&prompt=names") as socket:
        ready = json.loads(socket.recv(timeout=20))
        assert ready == {"type": "ready", "model": "tiny-en", "sample_rate": 16_000}
        data = pcm(sound)
        for start in range(0, len(data), 3333):  # messages end within samples
            socket.send(data[start : start + 3333])
        socket.send('{"type": "finish"}')
        *events, final, done = rest(socket)
        assert socket.close_code == 1000
    assert [event["text"] for event in events] == ["w0", "w1", "w2", "w3"]
    assert 0.012 <= events[1].pop("lag_s") < 10
    assert events[1] == {
        "type": "committed",
        "text": "w1",
        "start_s": 0.5,
        "end_s": 1.0,
        "language": "English",
    }
    assert (final["type"], final["text"]) == ("final", str(sound.size))
    assert done == {"type": "done"}
    stream = factory.made[-1]
    assert (stream.language, stream.context) == ("English", "names")
    assert np.abs(stream.samples - sound).max() < 1e-4
    assert stream.threads == {"stapes-worker"}


def test_events_come_while_the_sound_goes_on(live):
    with open_socket(live) as socket:
        socket.recv(timeout=20)
        for number in range(4):
            socket.send(pcm(tone(0.5)))
            assert json.loads(socket.recv(timeout=20))["text"] == f"w{number}"


@pytest.mark.parametrize("rate", [8000, 44_100, 48_000])
def test_other_rates(live, factory, rate):
    with open_socket(live, f"?sample_rate={rate}&encoding=f32le") as socket:
        for block in np.array_split(tone(1.5, rate), 13):
            socket.send(block.astype("<f4").tobytes())
        socket.send('{"type": "finish"}')
        assert rest(socket)[-1] == {"type": "done"}
    heard = factory.made[-1].samples
    assert heard.size == pytest.approx(1.5 * RATE, abs=2)
    middle = slice(RATE // 2, RATE)
    assert np.abs(heard[middle] - tone(1.5)[middle]).max() < 0.01


def test_nothing_at_all(live):
    with open_socket(live) as socket:
        socket.send('{"type": "finish"}')
        assert [message["type"] for message in rest(socket)] == ["ready", "final", "done"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("?model=whisper", "model"),
        ("?language=xx", "language"),
        ("?sample_rate=10", "sample_rate"),
        ("?sample_rate=fast", "sample_rate"),
        ("?encoding=mp3", "encoding"),
        ("?beam=4", "beam"),
    ],
)
def test_wrong_queries(live, query, param):
    with open_socket(live, query) as socket:
        (message,) = rest(socket)
    assert message["type"] == "error"
    assert message["error"]["param"] == param


@pytest.mark.parametrize("text", ["", "finish", "{}", "[]", '{"type": "start"}', "[" * 100_000])
def test_wrong_messages(live, text):
    with open_socket(live) as socket:
        socket.recv(timeout=20)
        socket.send(text)
        (message,) = rest(socket)
        assert message["error"]["code"] == "invalid_message"
        assert socket.close_code == 1007


def test_a_stream_may_last_longer_than_a_request_may_take_to_come(live, monkeypatch):
    monkeypatch.setattr(HttpProtocol, "head_s", 0.1)
    with open_socket(live) as socket:
        socket.recv(timeout=20)
        time.sleep(0.4)
        socket.send('{"type": "finish"}')
        assert rest(socket)[-1] == {"type": "done"}


def test_sound_that_is_no_number(live):
    with open_socket(live, "?encoding=f32le") as socket:
        socket.recv(timeout=20)
        socket.send(np.array([0, np.nan], "<f4").tobytes())
        (message,) = rest(socket)
        assert "not numbers" in message["error"]["message"]


@pytest.mark.parametrize(
    ("context", "code", "says"), [("refuse", 1007, "refused"), ("break", 1011, "went wrong")]
)
def test_a_stream_that_fails_fails_alone(live, context, code, says, caplog):
    with open_socket(live) as good, open_socket(live, f"?prompt={context}") as bad:
        assert json.loads(good.recv(timeout=20))["type"] == "ready"
        assert json.loads(bad.recv(timeout=20))["type"] == "ready"
        bad.send(pcm(tone(1)))
        (message,) = rest(bad)
        assert says in message["error"]["message"]
        assert bad.close_code == code
        good.send(pcm(tone(0.6)))
        assert json.loads(good.recv(timeout=20))["text"] == "w0"


def test_a_message_that_is_too_large(live):
    with open_socket(live) as socket:
        socket.recv(timeout=20)
        with suppress(ConnectionClosed):  # it may be refused while it is sent
            socket.send(bytes(3 * 2**20))
        assert rest(socket) == []
    until(lambda: live.worker.places_taken == 0)


def test_many_streams_and_their_limit(live):
    with ExitStack() as stack:
        sockets = [stack.enter_context(open_socket(live)) for _ in range(8)]
        for socket in sockets:
            assert json.loads(socket.recv(timeout=20))["type"] == "ready"
        with open_socket(live) as late:
            (message,) = rest(late)
            assert message["error"]["code"] == "busy"
            assert late.close_code == 1013
        for number, socket in enumerate(sockets):
            socket.send(pcm(tone(0.5 + number / 100)))
        for socket in sockets:
            assert json.loads(socket.recv(timeout=20))["text"] == "w0"
        for number, socket in list(enumerate(sockets))[::2]:  # the others leave without a word
            socket.send('{"type": "finish"}')
            assert rest(socket)[-2]["text"] == str(int((0.5 + number / 100) * RATE))
    until(lambda: live.worker.places_taken == 0)
    with open_socket(live) as socket:
        assert json.loads(socket.recv(timeout=20))["type"] == "ready"


def test_a_client_that_vanishes(live):
    with open_socket(live) as socket:
        socket.recv(timeout=20)
        socket.send(pcm(tone(1)))
        socket.socket.shutdown(SHUT_RDWR)  # no closing handshake
        until(lambda: live.worker.places_taken == 0)
    assert live.worker.lanes["tiny-en"].running == 0


def test_a_client_that_is_faster_than_the_worker_is_heard_to_the_end(speech):
    """The stream is given little at a time; the rest waits in a file."""
    factory = Factory(slow_s=0.03)
    with serving(Served({"tiny-en": speech}, open_stream=factory)) as running:
        with open_socket(running) as socket:
            socket.recv(timeout=20)
            seconds = 90
            sound = pcm(np.linspace(-0.9, 0.9, seconds * RATE, dtype=np.float32))
            for start in range(0, len(sound), 50_001):  # messages end within samples
                socket.send(sound[start : start + 50_001])
            socket.send('{"type": "finish"}')
            (task,) = running.worker.lanes["tiny-en"]._running
            ahead_s, held_s = task.behind_s, 0.0
            while factory.made[0].told < seconds:
                held_s = max(held_s, factory.made[0].waiting_s)
                time.sleep(0.002)
            *_, late, final, _ = rest(socket)
            assert final["text"] == str(seconds * RATE)
        assert ahead_s > 25
        assert 2 < late["lag_s"] < 60  # from when it came here, not from when it was fed
        assert 0 < held_s < 25
        heard = factory.made[0].samples
        assert np.array_equal(heard, np.frombuffer(sound, "<i2").astype(np.float32) / 2**15)


def leave_with_a_closing_frame(socket):
    socket.socket.sendall(b"\x88\x80\0\0\0\0")  # and wait for no answer


def leave_with_a_fin(socket):
    socket.socket.shutdown(SHUT_RDWR)


def leave_with_a_reset(socket):
    socket.socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    socket.socket.shutdown(SHUT_RD)  # ends the reading thread, so that close sends RST
    socket.socket.close()


WAYS = [leave_with_a_closing_frame, leave_with_a_fin, leave_with_a_reset]


@pytest.mark.parametrize("leave", WAYS, ids=lambda way: way.__name__)
def test_a_client_that_vanishes_far_ahead(speech, leave):
    """Its place is free although minutes of its sound wait, and nothing is sent that would fail."""
    factory = Factory(slow_s=0.05, quiet=True)
    served = Served({"tiny-en": speech}, open_stream=factory)
    with serving(served) as running, open_socket(running) as socket:
        socket.recv(timeout=20)
        for _ in range(120):
            socket.send(pcm(tone(1)))
        until(lambda: factory.made[0].told > 0)
        leave(socket)
        until(lambda: running.worker.places_taken == 0, 5)
        assert factory.made[0].told < 120  # half of what was sent
        until(lambda: factory.made[0].closed)


def test_more_sound_than_may_wait(speech):
    factory = Factory(slow_s=0.5)
    served = Served({"tiny-en": speech}, open_stream=factory)
    with serving(served, max_upload_bytes=2**20) as running:
        with open_socket(running) as socket:
            socket.recv(timeout=20)
            with suppress(ConnectionClosed):
                for _ in range(60):
                    socket.send(pcm(tone(1)))
            error = rest(socket)[-1]["error"]
            assert "More than 1 MB of sound would wait" in error["message"]
            assert error["code"] == "does_not_fit"
        until(lambda: running.worker.places_taken == 0)


def test_a_client_that_sends_nothing(speech):
    served = Served({"tiny-en": speech}, open_stream=Factory())
    with serving(served, stream_idle_s=0.3) as running:
        with open_socket(running) as socket:
            ready, error = rest(socket)
            assert ready["type"] == "ready"
            assert error["error"]["code"] == "too_slow"
            assert "0.3 s" in error["error"]["message"]
        until(lambda: running.worker.places_taken == 0)


def test_a_server_that_stops_ends_its_streams(speech):
    with serving(Served({"tiny-en": speech}, open_stream=Factory())) as running:
        with open_socket(running) as socket:
            socket.recv(timeout=20)
            socket.send(pcm(tone(0.7)))
            assert json.loads(socket.recv(timeout=20))["text"] == "w0"
            running.worker.drain()
            with suppress(ConnectionClosed):
                socket.send(pcm(tone(3)))
            final, done = rest(socket)
            assert (final["text"], done["type"]) == (str(int(0.7 * RATE)), "done")
        with open_socket(running) as late:
            (message,) = rest(late)
            assert message["error"]["code"] == "busy"


def test_what_streams_cost_is_counted(live):
    before = figures(live)
    with open_socket(live) as socket:
        socket.send(pcm(tone(1.5)))
        socket.send('{"type": "finish"}')
        rest(socket)
    with pytest.raises(InvalidStatus):
        open_socket(live, origin="https://evil.example")
    after = figures(live)

    def grown(*name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    assert grown("stapes_audio_seconds_total", "tiny-en") == 1.5
    assert grown("stapes_requests_total", "/v1/audio/stream", "101") == 1
    assert grown("stapes_requests_total", "other", "403") == 1


def test_without_a_factory(server):
    with open_socket(server) as socket:
        (message,) = rest(socket)
        assert message["error"]["code"] == "no_live_model"
        assert socket.close_code == 1008


def test_what_the_command_serves_times_the_words_of_live_streams(tmp_path):
    """An aligner is called as its folder is, never by the whole path."""
    aligner = write_aligner(tmp_path / "some-aligner")
    wanted = Wanted(("tiny-en",), aligner=str(aligner))
    served = _loaded(wanted, RuntimeOptions(threads=1))
    with serving(served) as running:
        with open_socket(running) as socket:
            socket.send((samples("digits-3.wav") * 32767).astype("<i2").tobytes())
            socket.send('{"type": "finish"}')
            final = next(event for event in rest(socket) if event["type"] == "final")
        with running.client() as client:
            models = client.get("/v1/models").json()["data"]
            assert {model["kind"]: model["id"] for model in models}["aligner"] == "some-aligner"
            sound = {"file": ("a.wav", wav(samples("digits-3.wav")))}
            asked = {"text": "four", "model": "some-aligner"}
            answer = client.post("/v1/audio/alignments", data=asked, files=sound)
            assert [word["word"] for word in answer.json()["words"]] == ["four"]
    assert [word["text"] for word in final["words"]] == final["text"].split()
    for word in final["words"]:
        assert word.keys() == {"text", "start_s", "end_s"}
        assert word["start_s"] == round(word["start_s"], 3)
