"""`stapes bench speak`: codes to samples at full size, by flow matching and the vocoder."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stapes.bench.measure import open_engine, rounds_in_turn
from stapes.bench.random_shapes import RandomShapes
from stapes.graph import NO_TRACE, NativeExecutor, NoTracer
from stapes.models.vevo2.acoustic import flow_weights, vocoder_weights
from stapes.models.vevo2.acoustic.config import FlowMatchingSpec, VocoderSpec
from stapes.models.vevo2.acoustic.flow_matching import (
    DEFAULTS,
    FlowMatching,
    FlowOptions,
    initial_noise,
)
from stapes.models.vevo2.acoustic.vocoder import Vocoder
from stapes.options import WeightFormat
from stapes.system import default_threads
from stapes.weights import CheckpointReader, MatrixPacker

F32 = NDArray[np.float32]

#: The published sizes.
FLOW = FlowMatchingSpec(128, 1024, 16, 16, 16384, 4)
VOCODER = VocoderSpec(128, 1024, 4096, 30, 1920, 480)

_SAMPLE_RATE = 24_000


@dataclass(frozen=True)
class SpeakBench:
    """What to run: seconds of the timbre's prompt, and of what is to be heard."""

    seconds: float = 4.0
    prompt_seconds: float = 3.0
    options: FlowOptions = DEFAULTS
    weights: WeightFormat = "bf16"
    threads: int | None = None
    instruction_set: str = "auto"
    flow: FlowMatchingSpec = FLOW
    vocoder: VocoderSpec = VOCODER

    @property
    def prompt_frames(self) -> int:
        """Frames of the prompt, whole codes of them."""
        return self.flow.cond_scale_factor * self._codes(self.prompt_seconds)

    @property
    def frames(self) -> int:
        """Frames to draw."""
        return self.flow.cond_scale_factor * self._codes(self.seconds)

    @property
    def audio_s(self) -> float:
        """Seconds of sound that the frames are."""
        return self.frames * self.vocoder.hop_size / _SAMPLE_RATE

    def codes(self) -> NDArray[np.int32]:
        """Codes of prompt and target, the same each time."""
        count = (self.prompt_frames + self.frames) // self.flow.cond_scale_factor
        codes = np.random.default_rng(0).integers(0, self.flow.cond_codebook_size, count)
        return codes.astype(np.int32)

    def prompt(self) -> F32:
        """The prompt's mel, the same each time."""
        return initial_noise(1, self.prompt_frames, self.flow.mel_dim)

    def mel(self) -> F32:
        """A mel for the vocoder, the same each time."""
        return initial_noise(2, self.frames, self.vocoder.input_channels)

    def _codes(self, seconds: float) -> int:
        hops = seconds * _SAMPLE_RATE / self.vocoder.hop_size
        return max(1, round(hops / self.flow.cond_scale_factor))


@dataclass(frozen=True)
class Stages:
    """Both stages, ready to run."""

    flow: FlowMatching
    vocoder: Vocoder


def flow_source(bench: SpeakBench) -> RandomShapes:
    """Weights of the flow-matching transformer."""
    return RandomShapes(flow_weights.expected_tensors(bench.flow))


def vocoder_source(bench: SpeakBench) -> RandomShapes:
    """Weights of the vocoder."""
    return RandomShapes(vocoder_weights.expected_tensors(bench.vocoder))


def build(bench: SpeakBench, tracer: NoTracer = NO_TRACE) -> Stages:
    """The stages with random weights."""
    engine = open_engine(bench.threads, bench.instruction_set)
    packer = MatrixPacker(engine, bench.weights)
    make_executor = partial(NativeExecutor, engine=engine, tracer=tracer)
    reader = CheckpointReader(flow_source(bench), packer)
    flow = flow_weights.read_flow_weights(reader, bench.flow)
    reader = CheckpointReader(vocoder_source(bench), packer)
    vocoder = vocoder_weights.read_vocoder_weights(reader, bench.vocoder)
    return Stages(
        FlowMatching(bench.flow, flow, make_executor),
        Vocoder(bench.vocoder, vocoder, make_executor),
    )


class Peer(Protocol):
    """Another implementation of the same stages with the same weights."""

    name: str

    def mel(self) -> F32:
        """The mel of the bench's codes and prompt, from the same noise."""
        ...

    def samples(self) -> F32:
        """The samples of the bench's mel."""
        ...


class _Run:
    """Runs the stages, and keeps the last result of each."""

    def __init__(self, bench: SpeakBench, tracer: NoTracer) -> None:
        self._bench, self._tracer = bench, tracer
        self._stages = build(bench, tracer)
        self._codes, self._prompt, self._mel = bench.codes(), bench.prompt(), bench.mel()
        self.results: dict[str, F32] = {}

    def mel(self) -> None:
        started = time.perf_counter()
        drawn = self._stages.flow.mel(self._codes, self._prompt, self._bench.options)
        self.results["flow"] = drawn
        self._tracer.stage("flow", started, time.perf_counter())

    def samples(self) -> None:
        started = time.perf_counter()
        self.results["vocoder"] = self._stages.vocoder.samples(self._mel)
        self._tracer.stage("vocoder", started, time.perf_counter())


def run(
    bench: SpeakBench,
    rounds: int,
    make_peer: Callable[[SpeakBench], Peer] | None = None,
    tracer: NoTracer = NO_TRACE,
) -> dict[str, object]:
    """The figures of so many rounds, medians all of them.

    Memory is the peak with our two stages alone, before a peer is built.
    """
    ours = _Run(bench, tracer)
    ours.mel()
    ours.samples()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if make_peer is None:
        columns = rounds_in_turn([ours.mel, ours.samples], rounds)
        return _report(bench, columns, peak_mb)
    peer = make_peer(bench)
    works = [ours.mel, peer.mel, ours.samples, peer.samples]
    flow, their_flow, vocoder, their_vocoder = rounds_in_turn(works, rounds)
    result = _report(bench, [flow, vocoder], peak_mb)
    result["versus"] = {
        peer.name: _versus("flow", flow, their_flow, ours.results["flow"], peer.mel())
        | _versus("vocoder", vocoder, their_vocoder, ours.results["vocoder"], peer.samples())
    }
    return result


def _report(bench: SpeakBench, columns: list[tuple[float, ...]], peak_mb: int) -> dict[str, object]:
    """The JSON object; the `_rtf` are seconds of work for a second of sound."""
    flow, vocoder = (statistics.median(column) for column in columns)
    return {
        "bench": "speak",
        "seconds": round(bench.audio_s, 2),
        "prompt_seconds": round(bench.prompt_frames * bench.audio_s / bench.frames, 2),
        "steps": bench.options.steps,
        "weights": bench.weights,
        "threads": bench.threads or default_threads(),
        "instruction_set": open_engine(1, bench.instruction_set).instruction_set,
        "flow_s": round(flow, 3),
        "flow_rtf": round(flow / bench.audio_s, 3),
        "vocoder_s": round(vocoder, 3),
        "vocoder_rtf": round(vocoder / bench.audio_s, 4),
        "peak_rss_mb": peak_mb,
    }


def _versus(
    stage: str, ours: tuple[float, ...], theirs: tuple[float, ...], mine: F32, other: F32
) -> dict[str, float]:
    """The peer's time, how many times ours it is, and by how much the results differ.

    The difference is the largest one, as a share of the largest value.
    """
    ratios = [there / here for here, there in zip(ours, theirs, strict=True)]
    difference = float(np.abs(mine - other).max() / np.abs(other).max())
    return {
        f"{stage}_s": round(statistics.median(theirs), 3),
        f"{stage}_ratio": round(statistics.median(ratios), 3),
        f"{stage}_difference": float(f"{difference:.2g}"),
    }
