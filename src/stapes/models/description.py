"""What a model is, said before any of its weights are read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from stapes.decoder import DecoderSpec
from stapes.decoder.weights import Shapes
from stapes.errors import ModelError
from stapes.models.converted import ConvertedSource
from stapes.models.registry import open_source, package_of, settled_options
from stapes.options import RuntimeOptions, WeightFormat
from stapes.weights import matrix_format, packed_size

_CHUNK = 1 << 22
_KV_BYTES = {"f16": 2, "bf16": 2, "f32": 4}


@dataclass(frozen=True)
class Part:
    """One network of a model.

    Attributes:
        sizes: layers, widths and the like, by the names of its configuration.
        shapes: of its tensors.
    """

    sizes: Mapping[str, int]
    shapes: Shapes


@dataclass(frozen=True)
class FurtherPart:
    """A network beside those that a model's source holds.

    Attributes:
        part: None when files of it are missing.
        weights: the format of its matrices, unless the options say another one for encoders.
        is_encoder: it reads audio, so that they may.
        files: of its weights.
        missing: why there is no part, in a sentence.
    """

    part: Part | None
    weights: WeightFormat
    is_encoder: bool = False
    files: tuple[Path, ...] = ()
    missing: str | None = None

    def format(self, options: RuntimeOptions) -> WeightFormat:
        """The format of its matrices."""
        return (options.encoder_weights if self.is_encoder else None) or self.weights


@dataclass(frozen=True)
class Description:
    """What a model's package says of one.

    Attributes:
        architecture: config.json's model_type.
        parts: the networks, "decoder" among them.
        spec: of the decoder.
        tokens_per_minute: positions that a minute of audio takes; None of text models.
        license: what the weights may be used for, where that is restricted.
        further: networks in other folders, by name.
    """

    architecture: str
    parts: Mapping[str, Part]
    spec: DecoderSpec
    tokens_per_minute: int | None
    license: str | None = None
    further: Mapping[str, FurtherPart] = field(default_factory=dict)


def describe(path: Path, options: RuntimeOptions) -> dict[str, Any]:
    """The JSON object of `stapes info`, without hashes. Formats of a converted file are its own.

    Raises:
        ModelError: it is no model, or its files are damaged.
        RequestError: a converted file is asked for in other formats.
    """
    source = open_source(path)
    package = package_of(source)
    options = settled_options(package, source, options)
    description: Description = package.describe(source)
    formats: Mapping[str, str] = {
        "encoder": options.encoder_format,
        "decoder": options.decoder_format,
    }
    shapes = {n: s for part in description.parts.values() for n, s in part.shapes.items()}
    with source.readers(shapes, description.spec, options):
        pass  # every tensor is there, in its shape
    weights_bytes = None
    if isinstance(source, ConvertedSource):
        formats, weights_bytes = source.formats, source.weights_bytes
    return {
        "model": str(path),
        "architecture": description.architecture,
        **({"license": description.license} if description.license else {}),
        "converted": isinstance(source, ConvertedSource),
        **{name: _part(part, formats[name]) for name, part in description.parts.items()},
        **{name: _further(part, options) for name, part in description.further.items()},
        "parameters": sum(_parameters(part) for part in _all_parts(description)),
        "memory": {
            "weights_bytes": weights_bytes or _packed_bytes(description, formats, options),
            **_kv_memory(description, options.kv),
        },
        "files": [
            {"file": str(file), "bytes": file.stat().st_size}
            for file in (
                *source.weight_files(),
                *(file for part in description.further.values() for file in part.files),
            )
        ],
    }


def _all_parts(description: Description) -> Iterator[Part]:
    """Every network that is there."""
    yield from description.parts.values()
    yield from (further.part for further in description.further.values() if further.part)


def _further(further: FurtherPart, options: RuntimeOptions) -> dict[str, Any]:
    if further.part is None:
        return {"missing": further.missing}
    format = further.format(options)
    bytes_ = _bytes_of(further.part, format)
    return {**_part(further.part, format), "weights_bytes": bytes_}


def _part(part: Part, format: str) -> dict[str, Any]:
    told = {**part.sizes, "parameters": _parameters(part), "weights": format}
    kept = {matrix_format([name], format) for name in part.shapes} - {format}
    return told | ({"query_key_value_weights": kept.pop()} if kept else {})


def _parameters(part: Part) -> int:
    return sum(prod(shape) for shape in part.shapes.values())


def _packed_bytes(
    description: Description, formats: Mapping[str, str], options: RuntimeOptions
) -> int:
    """What a checkpoint's weights take once they are packed, those of all its folders."""
    own = sum(_bytes_of(part, formats[name]) for name, part in description.parts.items())
    return own + sum(
        _bytes_of(further.part, further.format(options))
        for further in description.further.values()
        if further.part
    )


def _bytes_of(part: Part, format: str) -> int:
    return sum(
        packed_size(shape, matrix_format([tensor], format)) for tensor, shape in part.shapes.items()
    )


def _kv_memory(description: Description, kv: str) -> dict[str, Any]:
    """Bytes of the KV cache for each position, and for a minute of audio."""
    spec, per_minute = description.spec, description.tokens_per_minute
    per_token = 2 * spec.num_hidden_layers * spec.kv_size * _KV_BYTES[kv]
    return {
        "kv": kv,
        "kv_bytes_per_token": per_token,
        "kv_bytes_per_minute_of_audio": None if per_minute is None else per_minute * per_token,
    }


def sha256(path: Path, on_progress: Callable[[int], None] | None = None) -> str:
    """The hash of a file, as sha256sum prints it; the callback gets the bytes read so far.

    Raises:
        ModelError: the file cannot be read.
    """
    digest, done = hashlib.sha256(), 0
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                if on_progress:
                    on_progress(done)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    return digest.hexdigest()
