"""Live streams of the server decode in the runs of other requests, and say what they say alone."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import stapes
from server.serving import serving
from server.test_listening import open_socket
from stapes.audio import SAMPLE_RATE, read_audio
from stapes.audio.pieces import Piece
from stapes.cli.serve import open_stream
from stapes.decoder import Batch
from stapes.models.qwen3_asr.pipeline import Pipeline
from stapes.options import TranscribeOptions
from stapes.server.served import Served
from stapes.streaming.make import make_stream

DIGITS = Path(__file__).parents[2] / "examples" / "digits-10.flac"


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    return read_audio(DIGITS).samples


def said(events) -> list[tuple[str, str, float, float]]:
    return [(event.type, event.text, event.start_s, event.end_s) for event in events]


def alone(speech, samples):
    stream = stapes.stream(speech)
    stream.feed(samples)
    return stream.finish()


def test_beside_a_recording(speech, samples):
    batch = Batch(speech.decoder, max_rows=64)
    recording = Pipeline(speech, TranscribeOptions(max_new_tokens=64), None, batch=batch)
    recording.offer(Piece(0.0, samples.size / SAMPLE_RATE, samples))
    for _ in recording.begin():
        pass
    stream = make_stream(speech, batch=batch)
    stream.feed(samples)
    stream.end()
    told, finished = [], []
    while stream.pending or len(batch):
        if stream.waits or not stream.pending:
            finished += batch.step()
        else:
            told += stream.poll()
    assert said(told) == said(alone(speech, samples))
    recording.take(next(answer for answer in finished if recording.owns(answer)))
    (piece,) = recording.ready()
    assert piece.answer.text == speech.transcribe(samples, sample_rate=SAMPLE_RATE).text


def test_many_streams_share_runs(speech, samples):
    batch = Batch(speech.decoder)
    streams = [make_stream(speech, batch=batch) for _ in range(4)]
    told: list[list] = [[] for _ in streams]
    for stream in streams:
        stream.feed(samples)
        stream.end()
    most = 0
    while any(stream.pending for stream in streams):
        for stream, events in zip(streams, told, strict=True):
            if stream.pending and not stream.waits:
                events.extend(stream.poll())
        most = max(most, len(batch))
        if len(batch):
            batch.step()
    assert most == len(streams)
    expected = said(alone(speech, samples))
    assert all(said(events) == expected for events in told)


def test_a_stream_that_is_closed_leaves_the_batch(speech, samples):
    batch = Batch(speech.decoder)
    stream = make_stream(speech, batch=batch)
    stream.feed(samples)
    while not stream.waits:
        stream.poll()
    assert len(batch) == 1
    stream.close()
    assert len(batch) == 0


def test_over_sockets_at_once(speech, samples):
    expected = [event.text for event in alone(speech, samples) if event.type == "final"]
    pcm = (samples * 32767).astype("<i2").tobytes()
    served = Served({"tiny-en": speech}, open_stream=partial(open_stream, None))
    with serving(served, max_streams=4) as running, ThreadPoolExecutor(4) as pool:
        heard = [pool.submit(finals_of, running, pcm) for _ in range(4)]
        assert [each.result(60) for each in heard] == [expected] * 4


def finals_of(running, pcm: bytes) -> list[str]:
    """The final texts that a client is told which sends a tenth of a second at a time."""
    with open_socket(running) as client:
        assert json.loads(client.recv())["type"] == "ready"
        for first in range(0, len(pcm), 3200):
            client.send(pcm[first : first + 3200])
        client.send(json.dumps({"type": "finish"}))
        events = [json.loads(message) for message in client]
    assert events[-1]["type"] == "done"
    return [event["text"] for event in events if event["type"] == "final"]
