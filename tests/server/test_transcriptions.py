"""Transcriptions as OpenAI's own client asks for them."""

from __future__ import annotations

import time

import numpy as np
import openai
import pytest
import srt
import webvtt

import stapes
from server.serving import client_of, serving
from server.sounds_for import long_recording, samples, wav
from server.told import EXAMPLES, EXPECTED
from stapes.models.transcript import Word
from stapes.server.served import Served
from stapes.text.languages import LANGUAGES

NAME = "digits-10.flac"
PATH = EXAMPLES / NAME
FORMATS = ["json", "text", "srt", "verbose_json", "vtt"]


def create(client: openai.OpenAI, file=PATH, **fields):
    return client.audio.transcriptions.create(model="tiny-en", file=file, **fields)


def test_json(openai_client, speech):
    answer = create(openai_client)
    alone = speech.transcribe(PATH)
    assert answer.text == EXPECTED[NAME]
    assert answer.usage.type == "tokens"
    assert answer.usage.output_tokens == alone.tokens.new
    assert answer.usage.input_tokens == alone.tokens.prompt
    assert answer.usage.input_token_details.audio_tokens == alone.tokens.audio


def test_text(openai_client):
    assert create(openai_client, response_format="text") == EXPECTED[NAME] + "\n"


def test_subtitles_are_those_of_the_command_line(openai_client, speech):
    from stapes.output import srt as own_srt
    from stapes.output import vtt as own_vtt

    transcript = speech.transcribe(PATH)
    given = create(openai_client, response_format="srt")
    assert given == own_srt.render("", transcript)
    assert " ".join(cue.content for cue in srt.parse(given)).replace("\n", " ") == transcript.text
    given = create(openai_client, response_format="vtt")
    assert given == own_vtt.render("", transcript)
    assert len(list(webvtt.from_string(given))) == len(
        list(srt.parse(own_srt.render("", transcript)))
    )


@pytest.mark.parametrize("granularities", [["segment"], None])
def test_verbose_json(openai_client, speech, granularities):
    file = long_recording(4)
    chosen = {} if granularities is None else {"timestamp_granularities": granularities}
    answer = create(openai_client, ("a.wav", file), response_format="verbose_json", **chosen)
    file.seek(0)
    alone = speech.transcribe(file)
    assert answer.text == alone.text
    assert answer.language == "english"
    assert answer.duration == pytest.approx(alone.duration_s, abs=1e-3)
    assert answer.words is None
    assert len(answer.segments) == len(alone.segments) > 1
    for number, (given, own) in enumerate(zip(answer.segments, alone.segments, strict=True)):
        assert (given.id, given.text) == (number, own.text)
        assert given.start == pytest.approx(own.start_s, abs=1e-3)
        assert given.end == pytest.approx(own.end_s, abs=1e-3)
        assert np.exp(given.avg_logprob) == pytest.approx(own.confidence)
        assert speech.tokenizer.decode(given.tokens).strip() == given.text
        assert given.compression_ratio > 0.5


def test_content_types(server):
    kinds = {
        "json": "application/json",
        "text": "text/plain; charset=utf-8",
        "srt": "application/x-subrip; charset=utf-8",
        "verbose_json": "application/json",
        "vtt": "text/vtt; charset=utf-8",
    }
    with server.client() as client, PATH.open("rb") as file:
        for name, kind in kinds.items():
            file.seek(0)
            fields = {"model": "tiny-en", "response_format": name}
            answer = client.post("/v1/audio/transcriptions", data=fields, files={"file": file})
            assert answer.status_code == 200
            assert answer.headers["content-type"] == kind


@pytest.mark.parametrize("response_format", ["json", "text"])
def test_a_stream_of_several_pieces(openai_client, speech, response_format):
    file = long_recording(6)
    events = list(
        create(openai_client, ("a.wav", file), stream=True, response_format=response_format)
    )
    file.seek(0)
    alone = speech.transcribe(file)
    *deltas, done = events
    assert len(deltas) == len(alone.segments) > 2
    assert {event.type for event in deltas} == {"transcript.text.delta"}
    assert done.type == "transcript.text.done"
    assert "".join(event.delta for event in deltas) == done.text == alone.text
    assert done.usage.output_tokens == alone.tokens.new


def test_deltas_come_before_the_end(openai_client):
    times = []
    for _ in create(openai_client, ("a.wav", long_recording(40)), stream=True):  # not all at once
        times.append(time.perf_counter())
    assert times[-1] > times[0] + 0.02


def test_silence(openai_client):
    nothing = ("a.wav", wav(np.zeros(48_000, np.float32)))
    assert create(openai_client, nothing).text == ""
    verbose = create(openai_client, nothing, response_format="verbose_json")
    assert (verbose.text, verbose.segments, verbose.language) == ("", [], None)
    assert create(openai_client, nothing, response_format="srt") == ""
    events = list(create(openai_client, nothing, stream=True))
    assert [event.type for event in events] == ["transcript.text.done"]


@pytest.mark.parametrize("language", ["en", "EN", "en-US", "English", "english", "eng", ""])
def test_languages(openai_client, language):
    answer = create(openai_client, language=language, response_format="verbose_json")
    assert (answer.text, answer.language) == (EXPECTED[NAME], "english")


def test_other_languages_are_forced(openai_client):
    for given, name in {"fra": "french", "yue": "cantonese", "zh-TW": "chinese"}.items():
        answer = create(openai_client, language=given, response_format="verbose_json")
        assert answer.language == name
    assert len(LANGUAGES) == 30


def test_the_prompt_is_the_context(openai_client, speech):
    context = "Ada Lovelace, digits, extension nine"
    answer = create(openai_client, prompt=context)
    alone = speech.transcribe(PATH, context=context)
    assert answer.text == alone.text
    assert answer.usage.input_tokens == alone.tokens.prompt > speech.transcribe(PATH).tokens.prompt


def test_the_temperature_takes_effect(openai_client):
    mixed = np.concatenate([samples(NAME)[:20_000] + 0.3 * samples(NAME)[40_000:60_000]] * 3)
    texts = set()
    for _ in range(6):
        texts.add(create(openai_client, ("a.wav", wav(mixed)), temperature=1).text)
    assert len(texts) > 1
    cold = {create(openai_client, ("a.wav", wav(mixed)), temperature=0).text for _ in range(3)}
    assert len(cold) == 1


def test_without_looking_for_speech(openai_client, speech):
    sound = wav(np.concatenate([samples(NAME)[:40_000], np.zeros(48_000, np.float32)]))
    answer = create(openai_client, ("a.wav", sound), extra_body={"vad": False})
    sound.seek(0)
    alone = speech.transcribe(sound, vad=False)
    assert (answer.text, answer.usage.input_tokens) == (alone.text, alone.tokens.prompt)
    sound.seek(0)
    assert speech.transcribe(sound).tokens.prompt < alone.tokens.prompt


def wrong(openai_client, file=PATH, **fields) -> dict:
    with pytest.raises(openai.BadRequestError) as caught:
        create(openai_client, file, **fields)
    error = caught.value.body
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"response_format": "diarized_json"}, "response_format", "'srt'"),
        ({"temperature": 3}, "temperature", "less than or equal to 1"),
        ({"language": "xx"}, "language", "'xx' is not known"),
        ({"timestamp_granularities": ["word"]}, "timestamp_granularities", "verbose_json"),
        ({"stream": True, "response_format": "srt"}, "stream", "json, text or verbose_json"),
        ({"include": ["logprobs"]}, "include", "not supported"),
        ({"known_speaker_names": ["a"]}, "known_speaker_names", "not supported"),
        ({"chunking_strategy": {"type": "server_vad"}}, None, "not supported"),
        ({"extra_body": {"beam_size": 5}}, "beam_size", "not supported"),
        ({"extra_body": {"stream": "perhaps"}}, "stream", "perhaps"),
    ],
)
def test_what_is_wrong_is_named(openai_client, fields, param, says):
    error = wrong(openai_client, **fields)
    assert says in error["message"]
    if param:
        assert error["param"] == param
        assert param in error["message"] or param == "language"


def test_files_that_are_no_recordings(openai_client):
    assert "empty" in wrong(openai_client, ("a.wav", b""))["message"]
    error = wrong(openai_client, ("a.wav", b"hello " * 1000))
    assert (error["param"], error["code"]) == ("file", "invalid_audio")
    error = wrong(openai_client, ("../../etc/passwd", b"hello " * 1000))
    assert "etc" not in error["message"]
    error = wrong(openai_client, ("a.wav", b"hello " * 1000), stream=True)
    assert error["code"] == "invalid_audio"


def test_a_context_that_does_not_fit(openai_client):
    error = wrong(openai_client, prompt="word " * 40_000)
    assert error["code"] == "does_not_fit"
    assert "positions" in error["message"]


def test_models_that_are_not_there(openai_client):
    with pytest.raises(openai.NotFoundError, match=r"no model 'whisper-1'; loaded are: tiny-en"):
        openai_client.audio.transcriptions.create(model="whisper-1", file=PATH)
    with pytest.raises(openai.BadRequestError, match="transcribes no speech"):
        openai_client.audio.transcriptions.create(model="tiny-text", file=PATH)


def test_a_language_that_a_model_cannot_be_told_is_an_error(speech, tmp_path):
    from models.audio8_checkpoint import write_checkpoint

    model = stapes.load(write_checkpoint(tmp_path / "audio8"), threads=1)
    with serving(Served({"tiny-en": model})) as running, client_of(running) as client:
        error = wrong(client, language="en")
        assert "language" in error["message"]
        assert create(client, response_format="verbose_json").language is None


class FakeAligner:
    """Spreads the words over the sound, and keeps what it was asked."""

    name = "fake-aligner"

    def __init__(self) -> None:
        self.asked: list[tuple] = []

    def align_samples(self, samples, text, *, start_s, language):
        self.asked.append((samples.size, text, start_s, language))
        words = text.split()
        step = samples.size / 16_000 / len(words)
        return [
            Word(word, start_s + i * step, start_s + (i + 1) * step) for i, word in enumerate(words)
        ]


def test_word_times(speech):
    aligner = FakeAligner()
    served = Served({"tiny-en": speech}, aligner=aligner)
    with serving(served) as running, client_of(running) as client:
        answer = create(
            client,
            ("a.wav", long_recording(3)),
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
        )
        assert [word.word for word in answer.words] == answer.text.split()
        starts = [word.start for word in answer.words]
        assert starts == sorted(starts)
        assert [asked[2] for asked in aligner.asked] == pytest.approx(
            [segment.start for segment in answer.segments], abs=1e-3
        )
        assert {asked[3] for asked in aligner.asked} == {"English"}
        only_words = create(
            client, response_format="verbose_json", timestamp_granularities=["word"]
        )
        assert only_words.segments is None
        names = [model.id for model in client.models.list()]
        assert names == ["tiny-en", "aligner"]


def test_no_aligner_no_word_times(openai_client):
    with pytest.raises(openai.InternalServerError, match="No aligner model is loaded") as caught:
        create(openai_client, response_format="verbose_json", timestamp_granularities=["word"])
    assert caught.value.status_code == 501


def test_alignments(speech, server):
    def post(running, data, file=PATH):
        with running.client() as client, file.open("rb") as opened:
            return client.post("/v1/audio/alignments", data=data, files={"file": opened})

    answer = post(server, {"text": "one two"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "no_aligner")
    aligner = FakeAligner()
    with serving(Served({"tiny-en": speech}, aligner=aligner)) as running:
        answer = post(running, {"text": EXPECTED[NAME], "language": "en"}).json()
        assert [word["word"] for word in answer["words"]] == EXPECTED[NAME].split()
        assert answer["duration"] == pytest.approx(10.319, abs=0.01)
        assert aligner.asked[0][1:] == (EXPECTED[NAME], 0.0, "English")
        assert post(running, {"text": "one", "model": "other"}).status_code == 404
        error = post(running, {}).json()["error"]
        assert (error["param"], error["code"]) == ("text", "missing_field")
