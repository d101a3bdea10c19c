"""`stapes bench stream`: a step of a live stream, early, late, and against computing all anew."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stapes.api import load
from stapes.audio import SAMPLE_RATE, read_audio
from stapes.audio.speech import SpeechDetector, speech_detector
from stapes.bench.asr import noise
from stapes.bench.measure import seconds_of
from stapes.bench.processes import status_mb
from stapes.bench.synthetic import SYNTHETIC, activation_bits
from stapes.bench.transcriber import SyntheticTranscriber
from stapes.decoder import GenerateResult
from stapes.models.qwen3_asr.model import Transcriber
from stapes.options import RuntimeOptions
from stapes.streaming import StreamEvent, StreamPolicy
from stapes.streaming.hypothesis import Asked
from stapes.streaming.make import streaming_model
from stapes.streaming.readers import ColdReader, KeepingReader, Question, Reader
from stapes.streaming.stream import Look, Stream
from stapes.system import default_threads

F32 = NDArray[np.float32]

_MINUTE = 60.0
_REDONE_STEPS = 3  # taken on the kept state before the one that is compared


@dataclass(frozen=True)
class StreamBench:
    """What to run.

    Attributes:
        synthetic: size of a model with random weights, which hears noise; a step has `tokens` new
            ones, and its drafts are wrong as good as always.
        model, file: instead of it, a real model, and a recording that is heard over and over.
        seconds: length of the stream; three minutes and more compare two of them.
        compared_s: seconds of the stream at which everything is computed anew.
        tokens: new tokens of a step, in the synthetic case; 8 for 2 s are fast speech.
    """

    synthetic: str
    model: str | None
    file: Path | None
    seconds: float
    compared_s: float
    tokens: int
    runtime: RuntimeOptions
    instruction_set: str = "auto"


@dataclass(frozen=True, eq=False)
class _Case:
    model: Transcriber
    asked: Asked
    samples: F32
    detector: SpeechDetector | None


def run(bench: StreamBench) -> dict[str, object]:
    """One stream from its first to its last second, each step when its audio is there."""
    case = _case(bench)
    looks: list[Look] = []
    memory: list[float] = []
    finals: list[StreamEvent] = []
    lasted = seconds_of(lambda: _listen(case, looks, memory, finals))
    minutes = _minutes(looks, bench.seconds)
    offered = sum(look.result.draft_offered for look in looks)
    firsts = [look.seconds for look in looks if look.task.step == 1]
    return {
        "bench": "stream",
        "model": case.model.name,
        "weights": bench.runtime.decoder_format,
        "activation_bits": activation_bits(bench.synthetic, bench.runtime),
        "threads": bench.runtime.threads or default_threads(),
        "seconds": bench.seconds,
        "step_s": case.asked.policy.step_s,
        "looks": len(looks),
        "second_minute_step_s": _rounded(_at(minutes, 1)),
        "last_minute_step_s": _rounded(_at(minutes, -1)),
        "last_to_second": _ratio(_at(minutes, -1), _at(minutes, 1)),
        "second_minute_rss_mb": _at(memory, 1),
        "last_minute_rss_mb": _at(memory, -1),
        "first_partial_s": _rounded(
            case.asked.policy.step_s + statistics.median(firsts) if firsts else None
        ),
        "draft_offered": offered,
        "draft_accepted": sum(look.result.draft_accepted for look in looks),
        "reused_share": _ratio(
            sum(look.result.reused_tokens for look in looks),
            sum(look.result.prompt_tokens for look in looks),
        ),
        "rtf": round(lasted / bench.seconds, 4),
        **_compared(bench, case, looks, finals),
    }


def _case(bench: StreamBench) -> _Case:
    count = round(bench.seconds * SAMPLE_RATE)
    if bench.file is not None:
        runtime = bench.runtime
        loaded = load(
            bench.model or "tiny-en",
            weights=runtime.weights,
            kv=runtime.kv,
            threads=runtime.threads,
        )
        samples = np.resize(read_audio(bench.file).samples, count)
        return _Case(streaming_model(loaded), Asked(StreamPolicy()), samples, speech_detector()[0])
    policy = StreamPolicy(new_tokens=bench.tokens)
    config = SYNTHETIC[bench.synthetic]
    model = SyntheticTranscriber(bench.synthetic, config, bench.runtime, bench.instruction_set)
    return _Case(model, Asked(policy), noise(bench.seconds), None)


def _listen(case: _Case, looks: list[Look], memory: list[float], finals: list[StreamEvent]) -> None:
    """Feed a step at a time; memory in MB at the end of each minute."""
    stream = Stream(case.model, case.asked, detector=case.detector, on_look=looks.append)
    step = round(case.asked.policy.step_s * SAMPLE_RATE)
    minute = round(_MINUTE * SAMPLE_RATE)
    for first in range(0, case.samples.size, step):
        stream.feed(case.samples[first : first + step])
        while stream.pending:
            finals += [event for event in stream.poll() if event.type == "final"]
        if (first + step) // minute > first // minute:
            memory.append(round(status_mb("VmRSS"), 1))
    finals += [event for event in stream.finish() if event.type == "final"]


def _minutes(looks: Sequence[Look], length_s: float) -> list[float]:
    """Mean seconds of a look in each whole minute of the stream."""
    found: list[list[float]] = []
    for look in looks:
        number = int(look.task.end / SAMPLE_RATE / _MINUTE)
        found += [[] for _ in range(number + 1 - len(found))]
        found[number].append(look.seconds)
    return [statistics.fmean(seconds) for seconds in found[: int(length_s / _MINUTE)] if seconds]


def _compared(
    bench: StreamBench, case: _Case, looks: Sequence[Look], finals: Sequence[StreamEvent]
) -> dict[str, object]:
    """A step at `compared_s` against encoding and prefilling everything up to there anew.

    Twice: against the steps of the stream around it, whose context has rolled, and against the same
    step on a state that was kept from the beginning, which gives the same ids.
    """
    end = min(bench.compared_s, bench.seconds)
    samples = case.samples[: round(end * SAMPLE_RATE)]
    budget = case.asked.policy.new_tokens * 2
    text = _text(finals, end)
    kept, warm = KeepingReader(case.model, case.asked), 0.0
    answer: GenerateResult | None = None
    step = round(case.asked.policy.step_s * SAMPLE_RATE)
    for back in reversed(range(_REDONE_STEPS)):
        part = samples[: max(samples.size - back * step, 1)]
        warm, answer = _timed(kept, Question(part, text, [], budget))
    cold, anew = _timed(ColdReader(case.model, case.asked), Question(samples, text, [], budget))
    if answer is None or answer.token_ids != anew.token_ids:
        raise AssertionError("What was kept changed the answer.")
    around = [
        look.seconds
        for look in looks
        if abs(look.task.end - samples.size) <= 12 * SAMPLE_RATE and not look.task.is_final
    ]
    rolled = statistics.fmean(around) if around else None
    return {
        "compared_s": end,
        "compared_text_tokens": len(text),
        "everything_s": _rounded(cold),
        "step_there_s": _rounded(rolled),
        "share": _ratio(rolled, cold),
        "unrolled_step_s": _rounded(warm),
        "unrolled_share": _ratio(warm, cold),
    }


def _text(finals: Sequence[StreamEvent], end_s: float) -> list[int]:
    """Ids that the stream said up to a second: of the utterance that goes on there its share."""
    ids: list[int] = []
    for event in finals:
        share = (end_s - event.start_s) / (event.end_s - event.start_s)
        ids += event.token_ids[: int(len(event.token_ids) * min(max(share, 0.0), 1.0))]
    return ids


def _timed(reader: Reader, question: Question) -> tuple[float, GenerateResult]:
    started = time.perf_counter()
    result = _drained(reader.read(question))
    return time.perf_counter() - started, result


def _drained(reading: Generator[None, None, GenerateResult]) -> GenerateResult:
    while True:
        try:
            next(reading)
        except StopIteration as done:
            result: GenerateResult = done.value
            return result


def _at(values: Sequence[float], place: int) -> float | None:
    """Of the minutes: None when there are not two to compare."""
    return values[place] if len(values) > 1 else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _ratio(value: float | None, other: float | None) -> float | None:
    return round(value / other, 3) if value is not None and other else None
