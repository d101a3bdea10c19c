"""`stapes bench long`: the pieces of a long recording side by side, against one after another."""

from __future__ import annotations

import resource
import statistics
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE
from stapes.bench.asr import noise
from stapes.bench.measure import rounds_in_turn
from stapes.bench.synthetic import SYNTHETIC, activation_bits
from stapes.bench.transcriber import SyntheticTranscriber
from stapes.models.qwen3_asr.pipeline import Pipeline, default_width
from stapes.options import RuntimeOptions, TranscribeOptions
from stapes.system import default_threads


@dataclass(frozen=True)
class LongBench:
    """What to run: `pieces` of `seconds` each, with `tokens` new tokens, `batch` at a time."""

    synthetic: str
    pieces: int
    seconds: float
    tokens: int
    batch: int | None
    runtime: RuntimeOptions
    instruction_set: str = "auto"


@dataclass(frozen=True)
class _Noise:
    start_s: float
    end_s: float
    samples: NDArray[np.float32] = field(repr=False)


def run(bench: LongBench, rounds: int) -> dict[str, object]:
    """Seconds of all pieces side by side and one after another, in turn. The answers are equal."""
    model = SyntheticTranscriber(
        bench.synthetic, SYNTHETIC[bench.synthetic], bench.runtime, bench.instruction_set
    )
    stretches = _stretches(bench)
    width = bench.batch or default_width(model.decoder, bench.seconds)

    def transcribe(batch: int, pieces: list[_Noise]) -> list[str]:
        options = TranscribeOptions(max_new_tokens=bench.tokens, loop_detection=False, batch=batch)
        found = Pipeline(model, options, None).run(pieces)
        return [piece.answer.text for piece in found]

    transcribe(width, stretches[:width])  # not counted; a whole round would take as long again
    answers: dict[int, list[str]] = {}
    works = [lambda n=n: answers.update({n: transcribe(n, stretches)}) for n in (width, 1)]
    batched_s, single_s = map(statistics.median, rounds_in_turn(works, rounds, uncounted=0))
    if answers[width] != answers[1]:
        raise AssertionError("The answers are not those of pieces alone.")
    audio_s = bench.pieces * bench.seconds
    return {
        "bench": "long",
        "synthetic": bench.synthetic,
        "weights": bench.runtime.decoder_format,
        "activation_bits": activation_bits(bench.synthetic, bench.runtime),
        "threads": bench.runtime.threads or default_threads(),
        "instruction_set": bench.instruction_set,
        "pieces": bench.pieces,
        "seconds": bench.seconds,
        "tokens": bench.tokens,
        "batch": width,
        "batched_s": round(batched_s, 3),
        "single_s": round(single_s, 3),
        "speedup": round(single_s / batched_s, 3),
        "rtf": round(batched_s / audio_s, 4),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _stretches(bench: LongBench) -> list[_Noise]:
    """Different noise for every piece, so that answers differ."""
    whole = noise(bench.seconds + bench.pieces)
    length = round(bench.seconds * SAMPLE_RATE)
    return [
        _Noise(
            i * bench.seconds,
            (i + 1) * bench.seconds,
            whole[i * SAMPLE_RATE : i * SAMPLE_RATE + length],
        )
        for i in range(bench.pieces)
    ]
