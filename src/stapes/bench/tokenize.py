"""`stapes bench tokenize`: a recording's codes at full size, by Whisper's encoder and Coco."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stapes.bench.measure import open_engine, rounds_in_turn
from stapes.bench.random_shapes import RandomShapes
from stapes.graph import NO_TRACE, NativeExecutor, NoTracer
from stapes.models.vevo2.tokenizers import coco_weights, whisper_weights
from stapes.models.vevo2.tokenizers.coco import CocoEncoder
from stapes.models.vevo2.tokenizers.coco_weights import CocoSpec
from stapes.models.vevo2.tokenizers.whisper import WhisperEncoder
from stapes.models.vevo2.tokenizers.whisper_config import LAYOUTS, WhisperSpec
from stapes.models.vevo2.voice import HOP, SAMPLE_RATE
from stapes.options import WeightFormat
from stapes.system import default_threads
from stapes.weights import CheckpointReader, MatrixPacker

F32 = NDArray[np.float32]

#: The published sizes.
WHISPER = WhisperSpec(80, 1024, 24, 16, 4096, 1500)
CONTENT_STYLE = CocoSpec(24, 1024, 1024, 2, 384, 2048, 12, 16384, 8)
PROSODY = CocoSpec(24, 0, 1024, 3, 384, 2048, 12, 512, 8)

#: The layout under whose names the random encoder is read: Hugging Face's WhisperModel.
NAMES = LAYOUTS[1]


@dataclass(frozen=True)
class TokenizeBench:
    """What to run: a recording's seconds, and the sizes of the networks."""

    seconds: float = 10.0
    weights: WeightFormat = "f32"
    threads: int | None = None
    instruction_set: str = "auto"
    whisper: WhisperSpec = WHISPER
    content_style: CocoSpec = CONTENT_STYLE
    prosody: CocoSpec = PROSODY

    @property
    def frames(self) -> int:
        """Frames of the recording."""
        return max(1, round(self.seconds * SAMPLE_RATE / HOP))

    def mel(self) -> F32:
        """What Whisper reads, the same each time: always as long as its positions."""
        return _normal(1, self.whisper.mel_frames, self.whisper.num_mel_bins)

    def features(self) -> F32:
        """Normalised features, the same each time."""
        return _normal(2, self.frames, self.content_style.whisper_dim)

    def chroma(self) -> F32:
        """A chromagram, the same each time."""
        rows = np.abs(_normal(3, self.frames, self.prosody.chromagram_dim))
        result: F32 = rows / rows.max(axis=1, keepdims=True)
        return result


def _normal(seed: int, rows: int, width: int) -> F32:
    return np.random.default_rng(seed).standard_normal((rows, width), dtype=np.float32)


def whisper_source(bench: TokenizeBench) -> RandomShapes:
    """Weights of Whisper's encoder."""
    return RandomShapes(whisper_weights.expected_tensors(bench.whisper, NAMES))


def coco_source(spec: CocoSpec) -> RandomShapes:
    """Weights of a tokenizer."""
    return RandomShapes(coco_weights.expected_tensors(spec))


class Stages(Protocol):
    """The networks of one implementation, run on the bench's inputs."""

    def whisper(self) -> NDArray[np.generic]:
        """Features [positions, d_model]."""
        ...

    def content_style(self) -> NDArray[np.generic]:
        """Codes of the bench's features and chromagram."""
        ...

    def prosody(self) -> NDArray[np.generic]:
        """Codes of the bench's chromagram."""
        ...


STAGES = ("whisper", "content_style", "prosody")


class OurStages:
    """The networks with random weights."""

    def __init__(self, bench: TokenizeBench, tracer: NoTracer = NO_TRACE) -> None:
        engine = open_engine(bench.threads, bench.instruction_set)
        packer = MatrixPacker(engine, bench.weights)
        make_executor = partial(NativeExecutor, engine=engine, tracer=tracer)

        def coco(spec: CocoSpec) -> CocoEncoder:
            reader = CheckpointReader(coco_source(spec), packer)
            return CocoEncoder(spec, coco_weights.read_coco(reader, spec), make_executor)

        reader = CheckpointReader(whisper_source(bench), packer)
        weights = whisper_weights.read_whisper(reader, bench.whisper, NAMES)
        self._whisper = WhisperEncoder(bench.whisper, weights, make_executor)
        self._content_style, self._prosody = coco(bench.content_style), coco(bench.prosody)
        self._mel, self._features, self._chroma = bench.mel(), bench.features(), bench.chroma()

    def whisper(self) -> F32:
        """See `Stages`."""
        return self._whisper.encode(self._mel)

    def content_style(self) -> NDArray[np.int32]:
        """See `Stages`."""
        return self._content_style.codes(self._chroma, self._features)

    def prosody(self) -> NDArray[np.int32]:
        """See `Stages`."""
        return self._prosody.codes(self._chroma)


class Peer(Stages, Protocol):
    """Another implementation of the same networks with the same weights, in f32."""

    name: str


def run(
    bench: TokenizeBench,
    rounds: int,
    make_peer: Callable[[TokenizeBench], Peer] | None = None,
    tracer: NoTracer = NO_TRACE,
) -> dict[str, object]:
    """The figures of so many rounds, medians all of them.

    Memory is the peak with our networks alone, before a peer is built.
    """
    ours = OurStages(bench, tracer)
    results = {stage: getattr(ours, stage)() for stage in STAGES}
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    works = [getattr(ours, stage) for stage in STAGES]
    peer = make_peer(bench) if make_peer else None
    works += [getattr(peer, stage) for stage in STAGES] if peer else []
    columns = rounds_in_turn(works, rounds)
    report = _report(bench, columns, peak_mb)
    if peer:
        theirs = dict(zip(STAGES, columns[len(STAGES) :], strict=True))
        mine = dict(zip(STAGES, columns, strict=False))
        report["versus"] = {peer.name: _versus(mine, theirs, results, peer)}
    return report


def _report(
    bench: TokenizeBench, columns: list[tuple[float, ...]], peak_mb: int
) -> dict[str, object]:
    """The JSON object. Whisper takes the same time whatever the seconds."""
    timed = dict(zip(STAGES, columns, strict=False))
    seconds = {f"{name}_s": round(statistics.median(column), 3) for name, column in timed.items()}
    return {
        "bench": "tokenize",
        "seconds": bench.seconds,
        "weights": bench.weights,
        "threads": bench.threads or default_threads(),
        "instruction_set": open_engine(1, bench.instruction_set).instruction_set,
        **seconds,
        "peak_rss_mb": peak_mb,
    }


def _versus(
    ours: Mapping[str, tuple[float, ...]],
    theirs: Mapping[str, tuple[float, ...]],
    results: Mapping[str, NDArray[np.generic]],
    peer: Peer,
) -> dict[str, float]:
    """The peer's times, how many times ours they are, and what differs from its results.

    Of the features the root mean square of the difference, as a share of that of their deviation
    from their mean; of codes the share that is equal.
    """
    figures: dict[str, float] = {}
    for stage in STAGES:
        ratios = [there / here for here, there in zip(ours[stage], theirs[stage], strict=True)]
        figures[f"{stage}_s"] = round(statistics.median(theirs[stage]), 3)
        figures[f"{stage}_ratio"] = round(statistics.median(ratios), 3)
    features = np.asarray(peer.whisper(), np.float64)
    error = np.asarray(results["whisper"], np.float64) - features
    figures["whisper_difference"] = float(f"{error.std() / features.std(axis=0).mean():.2g}")
    for stage in STAGES[1:]:
        equal = (results[stage] == getattr(peer, stage)()).mean()
        figures[f"{stage}_equal"] = round(float(equal), 4)
    return figures
