"""Converted models: one file with packed weights and everything else that a model needs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stapes.decoder import DecoderSpec
from stapes.decoder.weights import Shapes
from stapes.errors import ConfigError, RequestError
from stapes.graph import Engine
from stapes.models.source import Readers, RecordingSource
from stapes.options import RuntimeOptions
from stapes.system import default_threads
from stapes.text.folder import Folder, MemoryFolder
from stapes.text.tokenizer import Tokenizer, TokenizerParts
from stapes.text.vocabulary import ARRAYS, Vocabulary
from stapes.weights.packed_file import Contents, PackedFile, PackedReader, open_packed

#: Files that are kept, where there are any; the tokenizer's are kept in another form.
KEPT_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "preprocessor_config.json",
    "processor_config.json",
)

# Texts and arrays of the file. Weights have the names of tensors, which begin otherwise.
_FILE, _FORMATS, _TOKENIZER = "file.", "formats", "tokenizer"
_ARRAYS = {name: f"stapes.tokenizer.{name}" for name in ARRAYS}


class ConvertedSource:
    """The source of a model in a converted file (see `models.source.ModelSource`)."""

    def __init__(self, file: PackedFile) -> None:
        self.path = file.path
        self._file = file
        names = [name for name in file.texts if name.startswith(_FILE)]
        contents = {name.removeprefix(_FILE): file.texts[name] for name in names}
        self.files: Folder = MemoryFolder(str(file.path), contents)
        self.formats: Mapping[str, str] = self._object(_FORMATS)
        """The formats of the matrices of the "encoder" and the "decoder"."""

    @property
    def weights_bytes(self) -> int:
        """Bytes of all weights."""
        names = (name for name in self._file.names() if name not in _ARRAYS.values())
        return sum(self._file.array(name).nbytes for name in names)

    def tokenizer(self) -> Tokenizer:
        """See `ModelSource`."""
        where, kept = str(self.path), self._object(_TOKENIZER)
        arrays = {name: self._file.array(stored) for name, stored in _ARRAYS.items()}
        try:
            control = {int(token_id): str(name) for token_id, name in kept["control"].items()}
            split, whole_words, eos = kept["split"], bool(kept["whole_words"]), kept["eos_token"]
        except (KeyError, AttributeError, ValueError) as error:
            raise ConfigError(f"The tokenizer in {where} is malformed: {error!r}.") from error
        vocabulary = Vocabulary(arrays, whole_words, where)
        return Tokenizer(TokenizerParts(where, split, vocabulary, control, eos))

    def names_token(self, name: str) -> bool:
        """See `ModelSource`."""
        control = self._object(_TOKENIZER).get("control")
        return isinstance(control, dict) and name in control.values()

    def weight_files(self) -> tuple[Path, ...]:
        """See `ModelSource`."""
        return (self.path,)

    @contextmanager
    def readers(
        self, expected: Shapes, spec: DecoderSpec, options: RuntimeOptions
    ) -> Iterator[Readers]:
        """See `ModelSource`."""
        for part, asked in (("encoder", options.encoder_weights), ("decoder", options.weights)):
            if asked is not None and asked != self.formats.get(part):
                raise RequestError(
                    f"{self.path} holds the {part} as {self.formats.get(part)} weights, not as "
                    f"{asked}; leave the format out, or convert the original once more."
                )
        engine = Engine(options.threads or default_threads())
        reader = PackedReader(self._file, expected, frozenset(_ARRAYS.values()))
        yield Readers(engine, reader, reader)

    def _object(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads(self._file.texts[name])
        except (KeyError, ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path} has no valid entry {name!r}: {error}.") from error
        if not isinstance(value, dict):
            raise ConfigError(f"{self.path}: the entry {name!r} is no object.")
        return value


def open_converted(path: Path) -> ConvertedSource | None:
    """Open a converted file, which its content tells; None when it is another safetensors file.

    Raises:
        TensorFileError: it is damaged, of another version, or no safetensors file at all.
    """
    file = open_packed(path)
    return None if file is None else ConvertedSource(file)


def recorded_contents(source: RecordingSource, options: RuntimeOptions) -> Contents:
    """What a converted file holds of a model that has been loaded from this source."""
    tokenizer = source.read_tokenizer
    assert tokenizer is not None
    parts = tokenizer.parts
    kept = {
        "split": parts.split,
        "whole_words": parts.vocabulary.whole_words,
        "control": {str(token_id): name for token_id, name in parts.control.items()},
        "eos_token": parts.eos_token,
    }
    formats = {"encoder": options.encoder_format, "decoder": options.decoder_format}
    files = {name: source.files / name for name in KEPT_FILES}
    return Contents(
        matrices=source.record.matrices,
        vectors=source.record.vectors,
        arrays={_ARRAYS[name]: array for name, array in parts.vocabulary.arrays.items()},
        texts={
            _FORMATS: json.dumps(formats),
            _TOKENIZER: json.dumps(kept),
            **{_FILE + n: file.read_text("utf-8") for n, file in files.items() if file.exists()},
        },
    )
