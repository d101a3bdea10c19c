"""Health, metrics, models, and the end of a server."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.serving import client_of, serving
from server.sounds_for import long_recording
from server.test_worker import hold, until
from server.told import EXAMPLES, EXPECTED
from stapes.server import status
from stapes.server.app import create_app
from stapes.server.config import ServerConfig
from stapes.server.run import StoppingServer, settings
from stapes.server.served import Served

NAME = "digits-3.wav"
LABELS = ("route", "status", "kind", "model", "le")


def figures(running) -> dict[tuple, float]:
    with running.client() as client:
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (
            sample.name,
            *(sample.labels[name] for name in LABELS if name in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_health_asks_the_worker(speech, monkeypatch):
    monkeypatch.setattr(status, "_PATIENCE_S", 0.2)
    with serving(Served({"tiny-en": speech})) as running, running.client() as client:
        good = client.get("/health")
        assert (good.status_code, good.json()["status"]) == (200, "ok")
        assert good.json()["models"] == {
            "tiny-en": {"slots": running.worker.lanes["tiny-en"].slots, "running": 0, "waiting": 0}
        }
        event = threading.Event()
        _, place = hold(running.worker, speech, event)
        stuck = client.get("/health")
        assert (stuck.status_code, stuck.json()["status"]) == (503, "stuck")
        event.set()
        place.close()
        assert client.get("/health").status_code == 200
        running.worker.stop()
        assert client.get("/health").status_code == 503


def test_health_does_not_wait_for_long_texts(server, text, monkeypatch):
    """A text becomes tokens in threads that all requests share; all of them may be busy."""
    goes_on = threading.Event()
    encode = text.encode

    def slow(prompt: str) -> list[int]:
        goes_on.wait(30)
        return encode(prompt)

    monkeypatch.setattr(text, "encode", slow)
    body = {"model": "tiny-text", "prompt": "Hello", "max_tokens": 1}
    with server.client() as client, ThreadPoolExecutor(40) as pool:
        answers = [pool.submit(client.post, "/v1/completions", json=body) for _ in range(40)]
        try:
            until(lambda: server.worker.places_taken == 40)
            assert client.get("/health", timeout=5).json()["status"] == "ok"
        finally:
            goes_on.set()
        assert {answer.result().status_code for answer in answers} == {200}


def test_metrics(server, openai_client, speech):
    before = figures(server)
    for _ in range(2):
        openai_client.audio.transcriptions.create(model="tiny-en", file=EXAMPLES / NAME)
    with server.client() as client:
        client.get("/nowhere/at/all")
    after = figures(server)

    def grown(*name: str) -> float:
        return after[name] - before.get(name, 0)

    alone = speech.transcribe(EXAMPLES / NAME)
    route = "/v1/audio/transcriptions"
    assert grown("stapes_requests_total", route, "200") == 2
    assert grown("stapes_requests_total", "other", "404") == 1
    assert grown("stapes_audio_seconds_total", "tiny-en") == pytest.approx(2 * alone.duration_s)
    assert grown("stapes_real_time_factor_count", "tiny-en") == 2
    assert grown("stapes_tokens_total", "new", "tiny-en") == 2 * alone.tokens.new
    assert grown("stapes_tokens_total", "prompt", "tiny-en") == 2 * alone.tokens.prompt
    assert grown("stapes_tokens_total", "reused", "tiny-en") > alone.tokens.prompt / 2
    assert grown("stapes_runs", "tiny-en") > 0
    assert after["stapes_kept_cache_bytes", "tiny-en"] > 0
    assert after["stapes_waiting", "tiny-en"] == after["stapes_running", "tiny-en"] == 0
    assert after["process_resident_memory_bytes",] > 1e7
    assert not any("nowhere" in str(name) for name in after)


def test_two_servers_count_apart(speech):
    with serving(Served({"a": speech})) as one, serving(Served({"b": speech})) as other:
        assert ("stapes_running", "a") in figures(one)
        assert ("stapes_running", "a") not in figures(other)


def test_models(server, openai_client):
    listed = openai_client.models.list().data
    assert [(model.id, model.object) for model in listed] == [
        ("tiny-en", "model"),
        ("tiny-text", "model"),
    ]
    assert openai_client.models.retrieve("tiny-text").id == "tiny-text"
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("gpt-4o/mini")


def test_errors_have_one_shape(server):
    with server.client() as client:
        cases = {
            client.get("/nope"): 404,
            client.get("/v1/audio/transcriptions"): 405,
            client.delete("/v1/models"): 405,
            client.post("/v1/chat/completions", content=b"{"): 400,
        }
        for answer, code in cases.items():
            assert answer.status_code == code
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["message"].endswith(".")


def test_a_mistake_of_ours_is_a_500_without_a_traceback(speech, monkeypatch, caplog):
    monkeypatch.setattr(speech, "check_room", lambda *args: 1 / 0)
    with serving(Served({"tiny-en": speech})) as running, client_of(running) as client:
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError) as caught:
                client.audio.transcriptions.create(
                    model="tiny-en", file=EXAMPLES / NAME, stream=stream
                )
            assert caught.value.body == {
                "message": "Something went wrong in the server.",
                "type": "server_error",
                "param": None,
                "code": "internal_error",
            }
        assert "ZeroDivisionError" in caplog.text
        monkeypatch.undo()
        answer = client.audio.transcriptions.create(model="tiny-en", file=EXAMPLES / NAME)
        assert answer.text == EXPECTED[NAME]


# -- clients that leave --------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_clients_that_leave_free_their_place(speech, stream):
    with serving(Served({"tiny-en": speech}), slots=1) as running:
        lane = running.worker.lanes["tiny-en"]
        for _ in range(6):
            client = running.client()
            fields = {"model": "tiny-en", "stream": str(stream).lower()}
            request = client.build_request(
                "POST",
                "/v1/audio/transcriptions",
                data=fields,
                files={"file": ("a.wav", long_recording(8))},
                timeout=httpx.Timeout(20) if stream else httpx.Timeout(20, read=0.1),
            )
            if stream:
                answer = client.send(request, stream=True)
                next(answer.iter_lines())
                answer.close()
            else:
                with pytest.raises(httpx.ReadTimeout):
                    client.send(request)
            client.close()
        until(lambda: running.worker.places_taken == 0)
        until(lambda: lane.running == len(lane.batch) == 0)
        with client_of(running) as other:
            answer = other.audio.transcriptions.create(model="tiny-en", file=EXAMPLES / NAME)
            assert answer.text == EXPECTED[NAME]
        until(lambda: figures(running)["stapes_disconnected_total",] == 6)


# -- the end -------------------------------------------------------------------------------------


@pytest.fixture
def process():
    command = [sys.executable, "-m", "stapes", "serve", "--port", "0"]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    line = started.stderr.readline()
    url = re.search(r"http://\S+:\d+", line)[0]
    yield started, url
    started.kill()
    started.wait()
    started.stderr.close()


def long_form(count: int):
    """A form with a recording that takes a while."""
    boundary = "x"
    sound = long_recording(count).getvalue()
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="model"\r\n\r\ntiny-en\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    )
    return head.encode() + sound + f"\r\n--{boundary}--\r\n".encode()


def test_a_signal_that_comes_while_a_lock_is_held(speech):
    """The handler runs in the thread that takes requests, between any two of its steps."""
    config = ServerConfig(port=0)
    app = create_app(Served({"tiny-en": speech}), config)
    told: list[int] = []
    server = StoppingServer(settings(app), app, 1.0, told.append)
    handler = threading.Thread(target=server.handle_exit, args=(signal.SIGTERM, None), daemon=True)
    with app.worker._lock:
        handler.start()
        handler.join(timeout=5)
        assert not handler.is_alive()
    assert not app.worker.draining
    assert asyncio.run(server.on_tick(1))
    assert app.worker.draining
    assert told == [0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_finish_and_refuses_new_ones(process, number, speech):
    started, url = process
    body, kind = long_form(12), {"Content-Type": "multipart/form-data; boundary=x"}
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(
            httpx.post(
                f"{url}/v1/audio/transcriptions",
                content=body,
                headers=kind,
                timeout=100,
                trust_env=False,
            )
        )

    asking = threading.Thread(target=ask)
    asking.start()
    with httpx.Client(base_url=url, timeout=20, trust_env=False) as client:
        until(lambda: client.get("/health").json()["models"]["tiny-en"]["running"] == 1)
        started.send_signal(number)
        assert "1 request under way" in started.stderr.readline()
        refused = client.post("/v1/audio/transcriptions", content=body[:10], headers=kind)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "10"
        assert "stopping" in refused.json()["error"]["message"]
        assert client.get("/health").json()["status"] == "stopping"
    asking.join(100)
    assert answers[0].status_code == 200
    assert answers[0].json()["text"] == speech.transcribe(long_recording(12)).text
    assert started.wait(20) == 0
    assert started.stderr.read() == "stapes: stopped.\n"


def test_a_second_signal_ends_at_once(process):
    started, url = process
    body, kind = long_form(40), {"Content-Type": "multipart/form-data; boundary=x"}

    def ask() -> None:
        with pytest.raises(httpx.HTTPError):
            httpx.post(
                f"{url}/v1/audio/transcriptions",
                content=body,
                headers=kind,
                timeout=100,
                trust_env=False,
            ).raise_for_status()

    asking = threading.Thread(target=ask)
    asking.start()
    with httpx.Client(base_url=url, timeout=20, trust_env=False) as client:
        until(lambda: client.get("/health").json()["models"]["tiny-en"]["running"] == 1)
    started.send_signal(signal.SIGTERM)
    started.stderr.readline()
    ended = time.perf_counter()
    started.send_signal(signal.SIGTERM)
    assert started.wait(30) == 130
    assert time.perf_counter() - ended < 15
    assert started.stderr.read() == "stapes: stopped at once.\n"
    asking.join(30)
