"""POST /v1/audio/speech, through the real client. The weights are random: the sound is noise."""

from __future__ import annotations

import base64
import io
import json
import threading
import wave
from collections.abc import Iterator

import httpx2 as httpx
import numpy as np
import openai
import pytest

from models.vevo2.voice_setting import QUICK, recording, voice_model, voice_root  # noqa: F401
from server.serving import Running, client_of, serving
from server.test_status import figures
from server.test_worker import until
from server.told import EXAMPLES, EXPECTED
from stapes.audio import read_audio
from stapes.errors import ModelError
from stapes.models.vevo2.request import VoiceOptions
from stapes.output.sound_file import as_int16
from stapes.output.sound_stream import STREAM_FORMATS
from stapes.server.served import Served, Speaker

ROUTE = "/v1/audio/speech"
TEXT = "Good morning. How are you?"
ASKED = {"model": "vevo2", "input": TEXT, "voice": "anna"}
OPTIONS = VoiceOptions(**QUICK, longest_piece=15)  # two pieces


@pytest.fixture(scope="module")
def speaker(voice_model) -> Speaker:  # noqa: F811
    voices = {"anna": recording(text="la la"), "bert": recording(1.4, seed=3)}
    return Speaker(voice_model, voices, OPTIONS)


@pytest.fixture(scope="module")
def running(speech, text, speaker) -> Iterator[Running]:
    served = Served({"tiny-en": speech}, {"tiny-text": text}, speakers={"vevo2": speaker})
    with serving(served, max_queue=1) as found:
        yield found
        assert found.app.places_taken == 0


@pytest.fixture
def client(running) -> Iterator[openai.OpenAI]:
    with client_of(running) as found:
        yield found


def expected(speaker: Speaker, voice: str = "anna", **options) -> np.ndarray:
    chosen = vars(OPTIONS) | options
    return as_int16(speaker.model.speak(TEXT, speaker.voices[voice], **chosen).samples)


def post(running: Running, **fields) -> httpx.Response:
    with running.client() as client:
        return client.post(ROUTE, json=ASKED | fields)


# -- answers -------------------------------------------------------------------------------------


def test_a_wav_file_is_what_the_model_says(client, speaker):
    answer = client.audio.speech.create(
        **ASKED, response_format="wav", extra_body={"seed": 7, "steps": 3}
    )
    assert answer.response.headers["content-type"] == "audio/wav"
    assert answer.response.headers["x-seed"] == "7"
    with wave.open(io.BytesIO(answer.content)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
    samples = np.frombuffer(answer.content[44:], "<i2")
    np.testing.assert_array_equal(samples, expected(speaker, seed=7, steps=3))
    assert samples.any()


def test_pieces_come_as_they_are_made(client, running, speaker, monkeypatch):
    """The second piece waits until the first one has been read."""
    read, model = threading.Event(), speaker.model
    original = model.speak_pieces

    def waiting(*args, **options):
        for piece in original(*args, **options):
            yield piece
            assert read.wait(20)

    monkeypatch.setattr(model, "speak_pieces", waiting)
    with client.audio.speech.with_streaming_response.create(
        **ASKED, response_format="pcm", extra_body={"seed": 7}
    ) as answer:
        blocks = answer.iter_bytes()
        first = next(blocks)
        assert running.app.lines["vevo2"].running == 1
        read.set()
        whole = first + b"".join(blocks)
    assert 0 < len(first) < len(whole)
    np.testing.assert_array_equal(np.frombuffer(whole, "<i2"), expected(speaker, seed=7))


@pytest.mark.parametrize("kind", STREAM_FORMATS)
def test_every_format_has_the_same_length(kind, client, speaker):
    answer = client.audio.speech.create(**ASKED, response_format=kind, extra_body={"seed": 7})
    seconds = expected(speaker, seed=7).size / 24_000
    if kind == "pcm":
        assert len(answer.content) == round(2 * 24_000 * seconds)
    else:
        assert read_audio(answer.content).duration_s == pytest.approx(seconds, abs=0.12)


def test_mp3_is_the_default(client):
    answer = client.audio.speech.create(**ASKED)
    assert answer.response.headers["content-type"] == "audio/mpeg"


def test_voices_differ_and_may_be_objects(client, speaker):
    fields = {"response_format": "pcm", "extra_body": {"seed": 7}}
    answer = client.audio.speech.create(**ASKED | {"voice": {"id": "bert"}}, **fields)
    samples = np.frombuffer(answer.content, "<i2")
    np.testing.assert_array_equal(samples, expected(speaker, "bert", seed=7))
    assert not np.array_equal(samples, expected(speaker, seed=7))


def test_a_seed_that_is_told_repeats(running):
    one = post(running, response_format="pcm")
    again = post(running, response_format="pcm", seed=int(one.headers["x-seed"]))
    another = post(running, response_format="pcm")
    assert one.content == again.content != another.content


def test_events(running, speaker):
    answer = post(running, response_format="pcm", stream_format="sse", seed=7, voice="bert")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(part[6:]) for part in answer.text.split("\n\n") if part]
    *deltas, done = events
    assert [event["type"] for event in deltas] == ["speech.audio.delta"] * 2
    sound = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    samples = expected(speaker, "bert", seed=7)
    np.testing.assert_array_equal(np.frombuffer(sound, "<i2"), samples)
    assert (done["type"], done["usage"]["output_tokens"]) == ("speech.audio.done", 50)
    assert done["duration"] == round(samples.size / 24_000, 3)
    assert "without its text" in done["warnings"][0]


def test_the_voice_model_is_listed(client, running):
    model = client.models.retrieve("vevo2").model_dump()
    assert (model["kind"], model["voices"]) == ("voice", ["anna", "bert"])
    assert model["license"].startswith("CC-BY-NC-ND-4.0")
    assert "vevo2" in [each.id for each in client.models.list()]
    with running.client() as web:
        health = web.get("/health").json()["models"]
    assert health["vevo2"] == {"slots": 1, "running": 0, "waiting": 0}


def test_seconds_are_counted(running, speaker):
    name = ("stapes_spoken_seconds_total", "vevo2")
    before = figures(running).get(name, 0)
    post(running, seed=7)
    seconds = expected(speaker, seed=7).size / 24_000
    assert figures(running)[name] - before == pytest.approx(seconds)


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"speed": 1.5}, "speed"),
        ({"instructions": "Whisper."}, "instructions"),
        ({"response_format": "ogg"}, "response_format"),
        ({"stream_format": "ws"}, "stream_format"),
        ({"input": ""}, "input"),
        ({"input": "?! ..."}, "input"),
        ({"input": "a" * 4097}, "input"),
        ({"voice": "cleo"}, "voice"),
        ({"voice": 3}, "voice"),
        ({"steps": 0}, "steps"),
        ({"steps": 129}, "steps"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"temperature": 1}, "temperature"),
        ({"model": "tiny-en"}, "model"),
    ],
)
def test_wrong_fields_are_named(fields, param, running):
    answer = post(running, **fields)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["message"].endswith(".")


def test_what_other_clients_send_by_default_is_taken(running):
    assert post(running, speed=1.0, instructions="", stream_format="audio").status_code == 200


def test_an_unknown_voice_is_told_which_there_are(client):
    with pytest.raises(openai.BadRequestError, match="there are: anna, bert"):
        client.audio.speech.create(**ASKED | {"voice": "alloy"})


def test_an_unknown_model(client, speech):
    with pytest.raises(openai.NotFoundError, match="loaded are: tiny-en, tiny-text, vevo2"):
        client.audio.speech.create(**ASKED | {"model": "tts-1"})
    with (
        serving(Served({"tiny-en": speech})) as other,
        client_of(other) as without,
        pytest.raises(openai.NotFoundError),
    ):
        without.audio.speech.create(**ASKED)


def test_a_voice_model_does_not_transcribe(client):
    with pytest.raises(openai.BadRequestError, match="transcribes no speech"):
        client.audio.transcriptions.create(model="vevo2", file=EXAMPLES / "digits-3.wav")


def test_an_error_before_the_first_piece_has_its_status(client, speaker, monkeypatch):
    def failing(*args, **options):
        raise ModelError("The model wrote no codes.")
        yield

    monkeypatch.setattr(speaker.model, "speak_pieces", failing)
    with pytest.raises(openai.InternalServerError, match="wrote no codes"):
        client.audio.speech.create(**ASKED)


@pytest.mark.parametrize("as_events", [False, True])
def test_an_error_on_the_way_is_no_whole_answer(as_events, running, speaker, monkeypatch, caplog):
    original = speaker.model.speak_pieces

    def failing(*args, **options):
        yield next(original(*args, **options))
        raise ModelError("The model wrote no codes.")

    monkeypatch.setattr(speaker.model, "speak_pieces", failing)
    if as_events:
        *_, last = post(running, stream_format="sse").text.strip().split("\n\n")
        assert json.loads(last[6:])["error"]["code"] == "model_error"
        return
    with pytest.raises(httpx.RemoteProtocolError):
        post(running, response_format="pcm")
    assert "wrote no codes" in caplog.text


# -- one at a time -------------------------------------------------------------------------------


@pytest.fixture
def slow(speaker, monkeypatch) -> Iterator[threading.Event]:
    """The model takes all steps of flow matching slowly until the event comes."""
    event = threading.Event()
    flow = speaker.model.parts.flow_matching
    original = flow.mel

    def waiting(*args, progress, should_cancel, **options):
        def step(done: int, total: int) -> None:
            event.wait(0.02)
            progress(done, total)

        return original(*args, progress=step, should_cancel=should_cancel, **options)

    monkeypatch.setattr(flow, "mel", waiting)
    yield event
    event.set()


def in_thread(running: Running, answers: list[httpx.Response], **fields) -> threading.Thread:
    thread = threading.Thread(target=lambda: answers.append(post(running, **fields)))
    thread.start()
    return thread


def test_a_full_line_is_a_503_and_transcriptions_go_on(running, client, slow):
    line, answers = running.app.lines["vevo2"], []
    threads = [in_thread(running, answers, steps=128) for _ in range(2)]
    until(lambda: (line.running, line.waiting) == (1, 1))
    refused = post(running)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "20")
    assert "1 request runs and 1 wait" in refused.json()["error"]["message"]
    heard = client.audio.transcriptions.create(model="tiny-en", file=EXAMPLES / "digits-3.wav")
    assert heard.text == EXPECTED["digits-3.wav"]
    assert line.running == 1
    slow.set()
    for thread in threads:
        thread.join(60)
    assert [answer.status_code for answer in answers] == [200, 200]


@pytest.mark.parametrize("first_piece", [False, True])
def test_a_client_that_leaves_ends_its_request(first_piece, running, client, speaker, slow):
    """Before the first piece and behind it; 128 slow steps of a piece would take 2.5 s."""
    line = running.app.lines["vevo2"]
    leaving = running.client()
    request = leaving.build_request(
        "POST",
        ROUTE,
        json=ASKED | {"response_format": "pcm", "steps": 128},
        timeout=httpx.Timeout(20) if first_piece else httpx.Timeout(20, read=0.5),
    )
    if first_piece:
        answer = leaving.send(request, stream=True)
        next(answer.iter_bytes())
        answer.close()
    else:
        with pytest.raises(httpx.ReadTimeout):
            leaving.send(request)
    leaving.close()
    until(lambda: line.running == 0, 1.0)
    until(lambda: running.app.places_taken == 0)
    slow.set()
    after = client.audio.speech.create(**ASKED, response_format="pcm", extra_body={"seed": 7})
    np.testing.assert_array_equal(np.frombuffer(after.content, "<i2"), expected(speaker, seed=7))


def test_a_server_that_stops_ends_what_runs(speaker, slow):
    answers: list[httpx.Response] = []
    with serving(Served(speakers={"vevo2": speaker})) as other:
        thread = in_thread(other, answers, steps=128)
        until(lambda: other.app.lines["vevo2"].running == 1)
        other.app.drain()
        refused = post(other)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
        other.app.lines["vevo2"].stop()
        thread.join(20)
    assert answers[0].status_code == 503
    assert "has stopped" in answers[0].json()["error"]["message"]
