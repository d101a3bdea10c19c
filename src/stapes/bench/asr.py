"""`stapes bench asr`: a whole run, from mel to the last token, on a synthetic model."""

from __future__ import annotations

import resource
import statistics
import time
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE, log_mel
from stapes.bench.synthetic import SYNTHETIC, RandomTensors
from stapes.decoder import GenerateOptions, Injection, Prompt, generate
from stapes.graph import NO_TRACE, NoTracer
from stapes.models.qwen3_asr.networks import Networks, build_networks
from stapes.options import RuntimeOptions
from stapes.system import default_threads

# Ids around the audio in a prompt with an empty context.
PROMPT_START = (151644, 8948, 198, 151645, 198, 151644, 872, 198, 151669)
PROMPT_END = (151670, 151645, 198, 151644, 77091, 198)


@dataclass(frozen=True)
class AsrBench:
    """What to run."""

    synthetic: str
    seconds: float
    tokens: int
    runtime: RuntimeOptions


@dataclass(frozen=True)
class AsrFigures:
    """Seconds of the stages of one run; decode is per token after the first."""

    mel_s: float
    encode_s: float
    prefill_s: float
    decode_ms_per_token: float
    total_s: float


def noise(seconds: float) -> NDArray[np.float32]:
    """Quiet noise, the same each time: [n] f32 at 16 kHz."""
    samples = np.random.default_rng(0).standard_normal(round(seconds * SAMPLE_RATE))
    return (0.05 * samples).astype(np.float32)


def build(bench: AsrBench, tracer: NoTracer = NO_TRACE) -> tuple[Networks, float]:
    """The networks with random weights, and the seconds it took to make and pack them."""
    started = time.perf_counter()
    config = SYNTHETIC[bench.synthetic]
    networks = build_networks(config, RandomTensors(config), bench.runtime, tracer)
    return networks, time.perf_counter() - started


def prompt_ids(audio_tokens: int, audio_token_id: int) -> list[int]:
    """The prompt of a transcription without context."""
    return [*PROMPT_START, *[audio_token_id] * audio_tokens, *PROMPT_END]


def run_once(bench: AsrBench, networks: Networks, samples: NDArray[np.float32]) -> AsrFigures:
    """One run on an empty session; loop detection is off and no id ends the answer."""
    config = SYNTHETIC[bench.synthetic]
    started = time.perf_counter()
    mel = log_mel(samples, config.encoder.num_mel_bins)
    mel_done = time.perf_counter()
    embeddings = networks.encoder.encode(mel)
    encoded = time.perf_counter()
    networks.decoder.tracer.stage("mel", started, mel_done)
    networks.decoder.tracer.stage("encode", mel_done, encoded)
    count = embeddings.shape[0]
    positions = np.arange(len(PROMPT_START), len(PROMPT_START) + count)
    prompt = Prompt(prompt_ids(count, config.audio_token_id), Injection(embeddings, positions))
    session = networks.decoder.new_session()
    result = generate(session, prompt, GenerateOptions(bench.tokens))
    ended = time.perf_counter()
    return AsrFigures(
        mel_s=mel_done - started,
        encode_s=encoded - mel_done,
        prefill_s=result.prefill_s,
        decode_ms_per_token=1000 * result.decode_s / max(1, bench.tokens - 1),
        total_s=ended - started,
    )


def median_figures(runs: list[AsrFigures]) -> AsrFigures:
    """The median of every figure on its own."""
    columns = {name: [asdict(run)[name] for run in runs] for name in asdict(runs[0])}
    return AsrFigures(**{name: statistics.median(values) for name, values in columns.items()})


def report(bench: AsrBench, figures: AsrFigures, load_s: float) -> dict[str, object]:
    """The JSON object of a benchmark. `rtf` is total_s over the audio's seconds."""
    return {
        "bench": "asr",
        "synthetic": bench.synthetic,
        "seconds": bench.seconds,
        "tokens": bench.tokens,
        "weights": bench.runtime.weights,
        "threads": bench.runtime.threads or default_threads(),
        "load_s": round(load_s, 3),
        **{name: round(value, 4) for name, value in asdict(figures).items()},
        "rtf": round(figures.total_s / bench.seconds, 4),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
