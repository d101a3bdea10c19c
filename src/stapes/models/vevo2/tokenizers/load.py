"""Loads the tokenizers from the published folders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stapes.errors import CheckpointError
from stapes.graph import NO_TRACE, Engine, Executor, NativeExecutor, NoTracer, Plan
from stapes.models.vevo2.tokenizers.chroma import N_CHROMA
from stapes.models.vevo2.tokenizers.coco import CocoEncoder
from stapes.models.vevo2.tokenizers.coco_weights import (
    CocoSpec,
    expected_tensors,
    is_unused,
    read_coco,
    spec_from_tensors,
)
from stapes.models.vevo2.tokenizers.statistics import read_statistics
from stapes.models.vevo2.tokenizers.tokenizer import (
    ContentStyleTokenizer,
    ProsodyTokenizer,
    WhisperFeatures,
)
from stapes.models.vevo2.tokenizers.whisper import WhisperEncoder
from stapes.models.vevo2.tokenizers.whisper_files import open_whisper
from stapes.models.vevo2.tokenizers.whisper_weights import read_whisper
from stapes.options import WeightFormat
from stapes.tensors import check_tensors, open_safetensors
from stapes.weights import CheckpointReader, MatrixPacker

MakeExecutor = Callable[[Plan], Executor]


@dataclass(frozen=True)
class TokenizerPaths:
    """Where the parts lie.

    Attributes:
        content_style, prosody: folders of the tokenizers, each with model.safetensors.
        whisper: Whisper-medium, as for `open_whisper`.
        statistics: whisper_stats.pt, or the same tensors as .safetensors.
    """

    content_style: Path
    prosody: Path
    whisper: Path
    statistics: Path


class TokenizerLoader:
    """Loads parts onto one engine.

    Args:
        engine: packs the weights and runs the plans.
        weights: format of the matrices. f32 gives the reference's codes; see
            docs/models/vevo2-tokenizers.md for how many change with the others.
        tracer: records the runs.
    """

    def __init__(
        self, engine: Engine, weights: WeightFormat = "f32", tracer: NoTracer = NO_TRACE
    ) -> None:
        self._packer = MatrixPacker(engine, weights)
        self._make_executor: MakeExecutor = partial(NativeExecutor, engine=engine, tracer=tracer)

    def content_style(self, folder: Path, whisper: WhisperFeatures) -> ContentStyleTokenizer:
        """The content-style tokenizer; CheckpointError unless its input fits Whisper's width."""
        coco = self._coco(folder)
        wanted, width = coco.spec.whisper_dim, whisper.encoder.spec.d_model
        if wanted != width:
            raise CheckpointError(
                f"The tokenizer in {folder} reads {wanted} Whisper features a frame, but this"
                f" Whisper has {width}."
                if wanted
                else f"{folder} holds a prosody tokenizer, not one of content and style."
            )
        return ContentStyleTokenizer(coco, whisper)

    def prosody(self, folder: Path) -> ProsodyTokenizer:
        """The prosody tokenizer; CheckpointError if it reads Whisper's features."""
        coco = self._coco(folder)
        if coco.spec.whisper_dim:
            raise CheckpointError(f"{folder} holds a content-style tokenizer, not one of prosody.")
        return ProsodyTokenizer(coco)

    def whisper(self, path: Path, statistics: Path) -> WhisperFeatures:
        """Whisper's encoder with its statistics; see `open_whisper` and `read_statistics`."""
        with open_whisper(path) as file:
            reader = CheckpointReader(file.store, self._packer)
            weights = read_whisper(reader, file.spec, file.names)
            encoder = WhisperEncoder(file.spec, weights, self._make_executor)
        return WhisperFeatures(encoder, read_statistics(statistics, file.spec.d_model))

    def _coco(self, folder: Path) -> CocoEncoder:
        with open_safetensors(folder) as store:
            spec = spec_from_tensors(store, str(folder))
            _check_spec(spec, folder)
            check_tensors(store, expected_tensors(spec), ignored=is_unused)
            weights = read_coco(CheckpointReader(store, self._packer), spec)
        return CocoEncoder(spec, weights, self._make_executor)


def _check_spec(spec: CocoSpec, folder: Path) -> None:
    if spec.chromagram_dim != N_CHROMA:
        raise CheckpointError(
            f"The tokenizer in {folder} reads {spec.chromagram_dim} chroma, not {N_CHROMA}."
        )


@dataclass(frozen=True)
class Tokenizers:
    """Both tokenizers."""

    content_style: ContentStyleTokenizer
    prosody: ProsodyTokenizer


def load_tokenizers(
    paths: TokenizerPaths,
    engine: Engine,
    weights: WeightFormat = "f32",
    tracer: NoTracer = NO_TRACE,
) -> Tokenizers:
    """Load both tokenizers and Whisper's encoder.

    Raises:
        TensorFileError, ConfigError, CheckpointError: files are missing, damaged or of another
            model.
    """
    loader = TokenizerLoader(engine, weights, tracer)
    whisper = loader.whisper(paths.whisper, paths.statistics)
    return Tokenizers(
        loader.content_style(paths.content_style, whisper), loader.prosody(paths.prosody)
    )
