"""Many clients at once, of all kinds, some of which leave: every answer right, and nothing left."""

from __future__ import annotations

import os
import random
import re
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx2 as httpx
import openai
import pytest

from server.serving import client_of, serving
from server.sounds_for import samples, wav
from server.test_worker import until
from server.told import EXAMPLES, EXPECTED
from stapes.output import srt, vtt
from stapes.server.served import Served

CLIENTS = 32
SECONDS = float(os.environ.get("STAPES_LOAD_SECONDS", "4"))  # 60 is the full test
NAMES = list(EXPECTED)
ROUTE = "/v1/audio/transcriptions"


class Client(threading.Thread):
    """Asks for one thing after the other until the time is over."""

    def __init__(self, running, number: int, expected: dict, ends: float) -> None:
        super().__init__()
        self.running, self.expected, self.ends = running, expected, ends
        self.random = random.Random(number)
        self.wrong: list[object] = []
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        kinds = [self.json, self.subtitles, self.streamed, self.chat, self.leaves, self.broken]
        with client_of(self.running) as self.client:
            while time.perf_counter() < self.ends:
                kind = self.random.choice(kinds)
                try:
                    kind()
                except Exception as error:
                    self.wrong.append((kind.__name__, error))
                self.counts[kind.__name__] += 1

    def check(self, given: object, right: object) -> None:
        if given != right:
            self.wrong.append((given, right))

    def create(self, name: str, **fields):
        path = EXAMPLES / name
        return self.client.audio.transcriptions.create(model="tiny-en", file=path, **fields)

    def json(self) -> None:
        name = self.random.choice(NAMES)
        self.check(self.create(name).text, EXPECTED[name])
        verbose = self.create(name, response_format="verbose_json")
        self.check(verbose.text, EXPECTED[name])

    def subtitles(self) -> None:
        name = self.random.choice(NAMES)
        kind = self.random.choice(["srt", "vtt", "text"])
        self.check(self.create(name, response_format=kind), self.expected[kind, name])

    def streamed(self) -> None:
        name = self.random.choice(NAMES)
        *deltas, done = self.create(name, stream=True)
        self.check("".join(event.delta for event in deltas), done.text)
        self.check(done.text, EXPECTED[name])

    def chat(self) -> None:
        prompt = self.random.choice(self.expected["prompts"])
        messages = [{"role": "user", "content": prompt}]
        answer = self.client.chat.completions.create(
            model="tiny-text", messages=messages, max_tokens=12
        )
        self.check(answer.choices[0].message.content, self.expected["chat", prompt])

    def leaves(self) -> None:
        """In the midst of an upload, of waiting, or of a stream."""
        timeout = httpx.Timeout(30, read=self.random.choice([0.001, 0.02, 0.1]))
        fields = {"model": "tiny-en", "stream": self.random.choice(["true", "false"])}
        files = {"file": ("a.wav", self.expected["long"])}
        with self.running.client() as client:
            try:
                with client.stream(
                    "POST", ROUTE, data=fields, files=files, timeout=timeout
                ) as answer:
                    next(answer.iter_lines(), None)
            except httpx.TimeoutException:
                pass

    def broken(self) -> None:
        try:
            self.client.audio.transcriptions.create(model="tiny-en", file=("a.mp3", b"x" * 5000))
        except openai.BadRequestError as error:
            self.check(error.body["code"], "invalid_audio")
        else:
            self.wrong.append("a recording of nothing was transcribed")


@pytest.fixture(scope="module")
def expected(speech, text) -> dict:
    answers: dict = {"prompts": [f"Tell me of {number}" for number in range(8)]}
    for name in NAMES:
        transcript = speech.transcribe(EXAMPLES / name)
        answers["srt", name] = srt.render("", transcript)
        answers["vtt", name] = vtt.render("", transcript)
        answers["text", name] = transcript.text + "\n"
    for prompt in answers["prompts"]:
        answers["chat", prompt] = text.chat(prompt, max_new_tokens=12).text
    answers["long"] = wav(samples("digits-10.flac")).getvalue()
    return answers


def test_32_clients(speech, text, expected):
    with serving(Served({"tiny-en": speech}, {"tiny-text": text})) as running:
        warm = Client(running, 0, expected, time.perf_counter() + 0.5)
        warm.start()
        warm.join(60)
        until(lambda: running.worker.places_taken == 0)
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        ends = time.perf_counter() + SECONDS
        clients = [Client(running, number, expected, ends) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(100)
        assert [wrong for client in clients for wrong in client.wrong] == []
        counts = sum((client.counts for client in clients), Counter())
        assert set(counts) == {"json", "subtitles", "streamed", "chat", "leaves", "broken"}
        until(lambda: running.worker.places_taken == 0)
        for lane in running.worker.lanes.values():
            assert (lane.waiting, lane.running, len(lane.batch)) == (0, 0, 0)
            assert len(lane.sessions) <= lane.slots
        until(lambda: not [t for t in threading.enumerate() if t.name == "stapes-reader"])
        # asyncio's own pool may have grown to its bound meanwhile; uploads write through it.
        pool = min(32, (os.cpu_count() or 1) + 4) + 40
        assert threading.active_count() <= threads + pool
        until(lambda: len(os.listdir("/proc/self/fd")) <= files + 4)


def test_memory_stays(expected):
    """The same load again and again takes no more, in a process of its own.

    Arenas of the allocator come and go with the threads that read recordings: they are bounded.
    """
    command = [sys.executable, "-m", "stapes", "serve", "--port", "0", "--parallel", "4"]
    environment = {**os.environ, "MALLOC_ARENA_MAX": "2"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    url = re.search(r"http://\S+:\d+", process.stderr.readline())[0]
    try:
        taken = [load_once(url, process.pid, expected) for _ in range(3)]
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()
    assert max(taken[1:]) - taken[0] < 50, taken


def load_once(url: str, number: int, expected: dict) -> float:
    """Megabytes of a process when all of a load is over."""

    def ask() -> None:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            for turn in range(4):
                leaves = turn % 2
                timeout = httpx.Timeout(60, read=0.03 if leaves else 60)
                files = {"file": ("a.wav", expected["long"])}
                try:
                    client.post(ROUTE, data={"model": "tiny-en"}, files=files, timeout=timeout)
                except httpx.TimeoutException:
                    assert leaves

    asking = [threading.Thread(target=ask) for _ in range(6)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(100)
    until(lambda: number_of(number, "fd") < 12 and number_of(number, "task") < 8, 30)
    pages = int(Path(f"/proc/{number}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def number_of(process: int, kind: str) -> int:
    return len(os.listdir(f"/proc/{process}/{kind}"))
