"""`stapes bench serve`: many clients at once against one, on a synthetic model."""

from __future__ import annotations

import io
import json
import resource
import threading
import time
import urllib.request
import wave
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE
from stapes.bench.asr import noise
from stapes.bench.synthetic import SYNTHETIC, activation_bits
from stapes.bench.transcriber import SyntheticTranscriber
from stapes.options import RuntimeOptions
from stapes.server.app import create_app
from stapes.server.config import ServerConfig
from stapes.server.run import in_background
from stapes.server.served import Served
from stapes.system import default_threads

_SECONDS = (2.0, 3.0, 5.0, 8.0, 12.0)
_BOUNDARY = "stapes-bench-serve"
_PATIENCE_S = 600


@dataclass(frozen=True)
class ServeBench:
    """What to run.

    Attributes:
        synthetic: size of the model.
        clients: that ask at once, each one request after the other.
        seconds: how long they do, after one client has for a third of that.
        tokens: one of so many ids ends an answer of the random model, if it is not as long as its
            clip permits (32 tokens and 16 a second) before.
        parallel: requests that run side by side; None chooses.
    """

    synthetic: str
    clients: int
    seconds: float
    tokens: int
    parallel: int | None
    runtime: RuntimeOptions
    instruction_set: str = "auto"


@dataclass
class _Load:
    """What clients got: answers by clip, seconds of sound, new tokens, and each one's latency."""

    answers: dict[int, set[str]] = field(default_factory=dict)
    audio_s: float = 0.0
    tokens: int = 0
    latencies_s: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, clip: int, seconds: float, answer: dict[str, object], latency_s: float) -> None:
        usage = answer["usage"]
        assert isinstance(usage, dict)
        with self.lock:
            self.answers.setdefault(clip, set()).add(str(answer["text"]))
            self.audio_s += seconds
            self.tokens += usage["output_tokens"]
            self.latencies_s.append(latency_s)


def run(bench: ServeBench) -> dict[str, object]:
    """Throughput of one client, and of all. AssertionError when an answer depends on the others."""
    config = SYNTHETIC[bench.synthetic]
    ends = frozenset(range(0, config.decoder.vocab_size, bench.tokens))
    decoder = replace(config.decoder, eos_token_ids=ends)
    model = SyntheticTranscriber(
        bench.synthetic, replace(config, decoder=decoder), bench.runtime, bench.instruction_set
    )
    app = create_app(
        Served({bench.synthetic: model}),
        settings := ServerConfig(port=0, max_queue=bench.clients),
        bench.parallel,
    )
    with in_background(app, settings) as url:
        _ask(url, bench.synthetic, _clip(0))  # pages of weights are touched, plans built
        single = _load(bench, url, 1, bench.seconds / 3)
        steps = app.worker.lanes[bench.synthetic].steps
        many = _load(bench, url, bench.clients, bench.seconds)
        steps = app.worker.lanes[bench.synthetic].steps - steps
        slots = app.worker.lanes[bench.synthetic].slots
    _check([single[0], many[0]])
    return _figures(bench, single, many, slots) | {
        "tokens_per_run": round(many[0].tokens / steps, 2)
    }


def _figures(
    bench: ServeBench, single: tuple[_Load, float], many: tuple[_Load, float], slots: int
) -> dict[str, object]:
    (one, one_s), (all_, all_s) = single, many
    alone, together = one.audio_s / one_s, all_.audio_s / all_s
    return {
        "bench": "serve",
        "synthetic": bench.synthetic,
        "weights": bench.runtime.decoder_format,
        "activation_bits": activation_bits(bench.synthetic, bench.runtime),
        "threads": bench.runtime.threads or default_threads(),
        "instruction_set": bench.instruction_set,
        "clients": bench.clients,
        "slots": slots,
        "tokens": bench.tokens,
        "requests": len(all_.latencies_s),
        "audio_s_per_s": round(together, 3),
        "single_audio_s_per_s": round(alone, 3),
        "throughput_ratio": round(together / alone, 3),
        "tokens_per_s": round(all_.tokens / all_s, 1),
        "single_tokens_per_s": round(one.tokens / one_s, 1),
        "tokens_per_request": round(all_.tokens / len(all_.latencies_s), 1),
        "median_latency_s": round(float(np.median(all_.latencies_s)), 3),
        "worst_latency_s": round(max(all_.latencies_s), 3),
        "single_median_latency_s": round(float(np.median(one.latencies_s)), 3),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _check(loads: list[_Load]) -> None:
    """The same clip has the same answer, however many are decoded beside it."""
    answers: dict[int, set[str]] = {}
    for load in loads:
        for clip, texts in load.answers.items():
            answers.setdefault(clip, set()).update(texts)
    different = [clip for clip, texts in answers.items() if len(texts) > 1]
    if different:
        raise AssertionError(f"Clips {different} have answers that differ.")
    if len(answers) > 1 and len(set(map(min, answers.values()))) == 1:
        raise AssertionError("The random model gives one answer to everything.")


def _load(bench: ServeBench, url: str, clients: int, seconds: float) -> tuple[_Load, float]:
    """What so many clients got, and how long it took until the last had its answer."""
    load, started = _Load(), time.perf_counter()
    errors: list[BaseException] = []

    def ask(client: int) -> None:
        turn = client
        try:
            while time.perf_counter() - started < seconds:
                clip, turn = turn % len(_SECONDS), turn + 1
                asked = time.perf_counter()
                answer = _ask(url, bench.synthetic, _clip(clip))
                load.add(clip, _SECONDS[clip], answer, time.perf_counter() - asked)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return load, time.perf_counter() - started


def _clip(number: int) -> bytes:
    """A file of noise, another one for every number."""
    start = number * SAMPLE_RATE
    whole = noise(_SECONDS[-1] + len(_SECONDS))
    return _wav(whole[start : start + round(_SECONDS[number] * SAMPLE_RATE)])


def _wav(samples: NDArray[np.float32]) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(SAMPLE_RATE)
        written.writeframes((samples * 32767).astype("<i2").tobytes())
    return file.getvalue()


def _ask(url: str, model: str, clip: bytes) -> dict[str, object]:
    """The answer of the server to a recording."""
    parts = [_part("model", model.encode()), _part("vad", b"false")]
    parts.append(_part("file", clip, "clip.wav"))
    body = b"".join(parts) + f"--{_BOUNDARY}--\r\n".encode()
    request = urllib.request.Request(
        f"{url}/v1/audio/transcriptions",
        body,
        {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"},
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=_PATIENCE_S) as response:
        answer: dict[str, object] = json.load(response)
    return answer


def _part(name: str, value: bytes, filename: str | None = None) -> bytes:
    file = f'; filename="{filename}"' if filename else ""
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + value + b"\r\n"
