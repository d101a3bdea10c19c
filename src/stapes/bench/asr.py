"""`stapes bench asr`: a whole run, from mel to the last token, on a synthetic model."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stapes.audio import SAMPLE_RATE, log_mel
from stapes.bench.measure import Sgemm, open_engine, seconds_of
from stapes.bench.synthetic import SYNTHETIC, RandomTensors, activation_bits
from stapes.bench.work import encode_bytes, encode_flops, prefill_bytes, prefill_flops
from stapes.decoder import GenerateOptions, Injection, Prompt, generate
from stapes.graph import NO_TRACE, NoTracer
from stapes.models.qwen3_asr.config import Qwen3AsrConfig
from stapes.models.qwen3_asr.encoder import audio_tokens
from stapes.models.qwen3_asr.networks import Networks, networks_from
from stapes.models.source import checkpoint_readers
from stapes.options import RuntimeOptions
from stapes.system import default_threads

# Ids around the audio in a prompt with an empty context.
PROMPT_START = (151644, 8948, 198, 151645, 198, 151644, 872, 198, 151669)
PROMPT_END = (151670, 151645, 198, 151644, 77091, 198)
_SGEMM_SHAPE = (512, 3072, 1024)
_SGEMM_TIMES = 5  # one of them takes too little time to be a measure


@dataclass(frozen=True)
class AsrBench:
    """What to run."""

    synthetic: str
    seconds: float
    tokens: int
    runtime: RuntimeOptions
    instruction_set: str = "auto"


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
    config = SYNTHETIC[bench.synthetic]
    return build_networks(config, bench.runtime, bench.instruction_set, tracer)


def build_networks(
    config: Qwen3AsrConfig,
    runtime: RuntimeOptions,
    instruction_set: str,
    tracer: NoTracer = NO_TRACE,
) -> tuple[Networks, float]:
    """See `build`."""
    started = time.perf_counter()
    engine = open_engine(runtime.threads, instruction_set)
    readers = checkpoint_readers(RandomTensors(config), engine, runtime)
    networks = networks_from(config, readers, runtime, tracer)
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


class Peer(Protocol):
    """Another runtime that does the same work."""

    name: str

    def run(self, samples: NDArray[np.float32]) -> float:
        """Seconds from samples to the last token."""
        ...


class _Rounds:
    """What every round measured: a run, sgemm and the peer, in turn."""

    def __init__(self, bench: AsrBench, networks: Networks, peer: Peer | None) -> None:
        self._bench, self._networks, self._peer = bench, networks, peer
        self._samples = noise(bench.seconds)
        self.sgemm = Sgemm(*_SGEMM_SHAPE)
        self.ours: list[AsrFigures] = []
        self.sgemm_s: list[float] = []
        self.theirs: list[float] = []

    def warm_up(self) -> None:
        """The first run pays for memory that later ones find."""
        short = self._samples[:SAMPLE_RATE]
        if self._peer:
            self._peer.run(short)
        run_once(self._bench, self._networks, short)
        self._multiply()

    def measure(self) -> None:
        """One round."""
        self.ours.append(run_once(self._bench, self._networks, self._samples))
        self.sgemm_s.append(seconds_of(self._multiply) / _SGEMM_TIMES)
        if self._peer:
            self.theirs.append(self._peer.run(self._samples))

    def _multiply(self) -> None:
        for _ in range(_SGEMM_TIMES):
            self.sgemm()

    def shares_of_sgemm(self) -> dict[str, float]:
        """The work of the encoder and the prefill, and their speed as a share of sgemm's."""
        config = SYNTHETIC[self._bench.synthetic]
        frames = log_mel(self._samples, config.encoder.num_mel_bins).shape[0]
        rows = len(prompt_ids(audio_tokens(frames), config.audio_token_id))
        encode, prefill = encode_flops(config.encoder, frames), prefill_flops(config.decoder, rows)
        limits = [self.sgemm.gflops(seconds) * 1e9 for seconds in self.sgemm_s]
        encoded = [encode / o.encode_s / most for o, most in zip(self.ours, limits, strict=True)]
        filled = [prefill / o.prefill_s / most for o, most in zip(self.ours, limits, strict=True)]
        return {
            "encode_bytes": encode_bytes(self._networks.encoder),
            "encode_gflop": round(encode / 1e9, 3),
            "encode_share_of_sgemm": round(statistics.median(encoded), 3),
            "prefill_rows": rows,
            "prefill_bytes": prefill_bytes(self._networks.decoder, rows),
            "prefill_gflop": round(prefill / 1e9, 3),
            "prefill_share_of_sgemm": round(statistics.median(filled), 3),
            "sgemm_gflops": round(statistics.median(limits) / 1e9, 1),
        }

    def versus(self) -> dict[str, float]:
        """The peer's time, and how many times as long as ours it was."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return {
            "total_s": round(statistics.median(self.theirs), 3),
            "ratio": round(statistics.median(there / here.total_s for here, there in pairs), 3),
        }


def run(
    bench: AsrBench,
    rounds: int,
    make_peer: Callable[[AsrBench], Peer] | None = None,
    tracer: NoTracer = NO_TRACE,
) -> dict[str, object]:
    """The figures of so many rounds, medians all of them."""
    networks, load_s = build(bench, tracer)
    peer = make_peer(bench) if make_peer else None
    measured = _Rounds(bench, networks, peer)
    measured.warm_up()
    for _ in range(rounds):
        measured.measure()
    result = report(bench, median_figures(measured.ours), load_s) | measured.shares_of_sgemm()
    result["instruction_set"] = open_engine(1, bench.instruction_set).instruction_set
    return result | ({"versus": {peer.name: measured.versus()}} if peer else {})


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
        "weights": bench.runtime.decoder_format,
        "activation_bits": activation_bits(bench.synthetic, bench.runtime),
        "threads": bench.runtime.threads or default_threads(),
        "load_s": round(load_s, 3),
        **{name: round(value, 4) for name, value in asdict(figures).items()},
        "rtf": round(figures.total_s / bench.seconds, 4),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
