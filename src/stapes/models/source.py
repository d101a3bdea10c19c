"""Where a model comes from: a checkpoint's folder, or one converted file.

A model's load code sees a `ModelSource` and nothing else, so that it reads either, and so that
converting is loading through a `RecordingSource` and writing what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from stapes.decoder import Decoder, DecoderSpec, read_weights
from stapes.decoder.weights import Shapes
from stapes.graph import Engine, NativeExecutor, NoTracer
from stapes.models.tied_head import check_tied_head
from stapes.options import ActivationBits, RuntimeOptions
from stapes.system import default_threads
from stapes.tensors import check_tensors, open_safetensors
from stapes.text.folder import Folder
from stapes.text.tokenizer import Tokenizer, load_tokenizer
from stapes.weights import CheckpointReader, MatrixPacker, TensorSource, WeightReader
from stapes.weights.reader import Record, RecordingReader


@dataclass(frozen=True)
class Readers:
    """Readers of a model's weights, and the engine that packs and runs them."""

    engine: Engine
    encoder: WeightReader
    decoder: WeightReader


class ModelSource(Protocol):
    """The files and weights of one model."""

    @property
    def path(self) -> Path:
        """The folder or the file."""
        ...

    @property
    def files(self) -> Folder:
        """config.json and what lies beside it, the tokenizer excepted."""
        ...

    def tokenizer(self) -> Tokenizer:
        """The tokenizer; ConfigError when it cannot be used."""
        ...

    def names_token(self, name: str) -> bool:
        """Whether the tokenizer has an added token of this name, without making the tokenizer."""
        ...

    def weight_files(self) -> tuple[Path, ...]:
        """The files that hold the weights."""
        ...

    def readers(
        self, expected: Shapes, spec: DecoderSpec, options: RuntimeOptions
    ) -> AbstractContextManager[Readers]:
        """Open the weights for as long as a `with` block lasts; what was read stays valid.

        Args:
            expected: every tensor that the model needs, under the checkpoint's names.
            spec: the decoder, whose head may be tied.
            options: formats and threads.

        Raises:
            CheckpointError: tensors are missing, unexpected or mis-shaped.
            RequestError: the weights are packed already, and not in the formats that are asked for.
        """
        ...


def checkpoint_readers(source: TensorSource, engine: Engine, options: RuntimeOptions) -> Readers:
    """Readers that pack tensors in the formats of the options."""
    encoder, decoder = (
        CheckpointReader(source, MatrixPacker(engine, format))
        for format in (options.encoder_format, options.decoder_format)
    )
    return Readers(engine, encoder, decoder)


def executors(
    readers: Readers, options: RuntimeOptions, tracer: NoTracer, bits: ActivationBits = 13
) -> Callable[..., NativeExecutor]:
    """What makes an executor of a plan, on the readers' engine.

    `bits` are those of activations beside q8 weights unless the options ask for others.
    """
    asked = options.activation_bits or bits
    return partial(NativeExecutor, engine=readers.engine, tracer=tracer, activation_bits=asked)


def read_decoder(
    spec: DecoderSpec,
    readers: Readers,
    options: RuntimeOptions,
    tracer: NoTracer,
    bits: ActivationBits = 13,
) -> Decoder:
    """Read a decoder's weights and build what runs it; see `executors` for `bits`."""
    weights = read_weights(readers.decoder, spec)
    make_executor = executors(readers, options, tracer, bits)
    return Decoder(spec, weights, make_executor, options.kv, tracer=tracer)


#: Files that name added tokens, the short ones first.
_NAMING_FILES = ("added_tokens.json", "tokenizer_config.json", "tokenizer.json")


def _text(file: Path) -> str:
    """The text of a file; one that cannot be read is left to those who need it."""
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError):
        return ""


class FolderSource:
    """A checkpoint's folder, as Hugging Face lays it out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: Folder = path

    def tokenizer(self) -> Tokenizer:
        """See `ModelSource`."""
        return load_tokenizer(self.path)

    def names_token(self, name: str) -> bool:
        """See `ModelSource`; the files are searched as text."""
        files = [self.path / file for file in _NAMING_FILES]
        return any(f'"{name}"' in _text(file) for file in files if file.exists())

    def weight_files(self) -> tuple[Path, ...]:
        """See `ModelSource`."""
        with open_safetensors(self.path) as store:
            return store.files

    @contextmanager
    def readers(
        self, expected: Shapes, spec: DecoderSpec, options: RuntimeOptions
    ) -> Iterator[Readers]:
        """See `ModelSource`."""
        # A tied checkpoint may carry its head all the same; it is the embedding again.
        ignored = (spec.names.lm_head,) if spec.tie_word_embeddings else ()
        with open_safetensors(self.path) as store:
            check_tensors(store, expected, ignored=ignored)
            check_tied_head(store, spec)
            engine = Engine(options.threads or default_threads())
            yield checkpoint_readers(store, engine, options)


class RecordingSource:
    """Another source; keeps the weights that are read from it, and the tokenizer."""

    def __init__(self, inner: ModelSource) -> None:
        self._inner = inner
        self.path, self.files = inner.path, inner.files
        self.record = Record()
        self.read_tokenizer: Tokenizer | None = None

    def tokenizer(self) -> Tokenizer:
        """See `ModelSource`."""
        self.read_tokenizer = self._inner.tokenizer()
        return self.read_tokenizer

    def names_token(self, name: str) -> bool:
        """See `ModelSource`."""
        return self._inner.names_token(name)

    def weight_files(self) -> tuple[Path, ...]:
        """See `ModelSource`."""
        return self._inner.weight_files()

    @contextmanager
    def readers(
        self, expected: Shapes, spec: DecoderSpec, options: RuntimeOptions
    ) -> Iterator[Readers]:
        """See `ModelSource`."""
        with self._inner.readers(expected, spec, options) as inner:
            yield Readers(
                inner.engine,
                RecordingReader(inner.encoder, self.record),
                RecordingReader(inner.decoder, self.record),
            )
