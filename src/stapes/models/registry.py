"""Finding models: bundled ones by name, folders, files, repositories of the Hugging Face hub."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stapes.errors import CapacityError, ConfigError, ModelError, RequestError
from stapes.options import ActivationBits, KvFormat, RuntimeOptions, WeightFormat
from stapes.text.json_files import read_json_object

if TYPE_CHECKING:
    from stapes.graph import NoTracer
    from stapes.models.hub import HubName
    from stapes.models.interface import SpeechModel
    from stapes.models.qwen3_asr.aligner import ForcedAligner
    from stapes.models.qwen_text import TextModel
    from stapes.models.source import ModelSource
    from stapes.models.vevo2.pipeline import VoiceModel

BUNDLED = Path(__file__).parent / "bundled"
_VOICE_TOKEN = "<|content_style_start|>"  # which Vevo2 adds to the tokenizer of its text model

#: model_type of speech models -> the package that loads them (see `package_of`).
SPEECH = {
    "qwen3_asr": "stapes.models.qwen3_asr",  # Confucius4-R2T2 among them
    "arkasr": "stapes.models.qwen3_asr.audio8",  # Audio8-ASR
}
#: The same of text models.
TEXT = {"qwen2": "stapes.models.qwen_text", "qwen3": "stapes.models.qwen_text"}
#: The same of models that write the codes of speech and singing: config.json says qwen2, the
#: tokenizer more.
VOICE = {"vevo2": "stapes.models.vevo2.load"}

#: The same of forced aligners.
ALIGNERS = {"qwen3_forced_aligner": "stapes.models.qwen3_asr.aligner"}

#: All of them.
ALL = SPEECH | TEXT | VOICE | ALIGNERS

_OTHER_COMMANDS = {
    **dict.fromkeys(SPEECH, ", a speech model, which `stapes transcribe` runs"),
    **dict.fromkeys(TEXT, ", a text model, which `stapes generate` runs"),
    **dict.fromkeys(ALIGNERS, ", a forced aligner, which `stapes align` runs"),
    **dict.fromkeys(VOICE, ", a voice model, which `stapes speak` runs"),
}


def available() -> tuple[str, ...]:
    """Names of the bundled models."""
    if not BUNDLED.is_dir():
        return ()
    return tuple(sorted(path.name for path in BUNDLED.iterdir() if (path / "config.json").exists()))


def load(
    model: str | Path,
    *,
    weights: WeightFormat | None,
    encoder_weights: WeightFormat | None,
    kv: KvFormat,
    threads: int | None,
    activation_bits: ActivationBits | None = None,
    tracer: NoTracer | None = None,
) -> SpeechModel:
    """See `stapes.load`."""
    options = RuntimeOptions(weights, kv, threads, encoder_weights, activation_bits)
    return cast("SpeechModel", load_kind(model, options, SPEECH, tracer))


def load_text(
    model: str | Path,
    *,
    weights: WeightFormat | None,
    kv: KvFormat,
    threads: int | None,
    activation_bits: ActivationBits | None = None,
    tracer: NoTracer | None = None,
) -> TextModel:
    """See `stapes.load_text`."""
    options = RuntimeOptions(weights, kv, threads, None, activation_bits)
    return cast("TextModel", load_kind(model, options, TEXT, tracer))


def load_aligner(
    model: str | Path,
    *,
    weights: WeightFormat | None,
    encoder_weights: WeightFormat | None,
    kv: KvFormat,
    threads: int | None,
    activation_bits: ActivationBits | None = None,
    tracer: NoTracer | None = None,
) -> ForcedAligner:
    """See `stapes.load_aligner`."""
    options = RuntimeOptions(weights, kv, threads, encoder_weights, activation_bits)
    return cast("ForcedAligner", load_kind(model, options, ALIGNERS, tracer))


def load_voice(
    model: str | Path,
    *,
    weights: WeightFormat | None,
    encoder_weights: WeightFormat | None,
    acoustic_weights: WeightFormat | None,
    kv: KvFormat,
    threads: int | None,
    whisper: str | Path | None,
    tracer: NoTracer | None = None,
) -> VoiceModel:
    """See `stapes.load_voice`."""
    from stapes.models.vevo2.load import open_voice

    options = RuntimeOptions(weights, kv, threads, encoder_weights)
    place = None if whisper is None else Path(whisper)
    return open_voice(model, find_voice(model), options, acoustic_weights, place, tracer)


def find_voice(model: str | Path) -> Path:
    """The folder that a voice model's name or path stands for; one of the hub is downloaded.

    ModelError when there is none.
    """
    name = hub_name(model)
    if name is None or name.file is not None:
        return find_model(model)
    from stapes.models.vevo2 import published

    return published.find(name.repository) or published.fetch(name.repository)


def load_any(
    model: str | Path,
    *,
    weights: WeightFormat | None = None,
    encoder_weights: WeightFormat | None = None,
    kv: KvFormat = "f16",
    threads: int | None = None,
    activation_bits: ActivationBits | None = None,
) -> SpeechModel | TextModel:
    """A speech or a text model, whichever it is; see `stapes.load` and `stapes.load_text`."""
    options = RuntimeOptions(weights, kv, threads, encoder_weights, activation_bits)
    return cast("SpeechModel | TextModel", load_kind(model, options, SPEECH | TEXT))


def load_kind(
    model: str | Path,
    options: RuntimeOptions,
    packages: Mapping[str, str],
    tracer: NoTracer | None = None,
) -> Any:
    """Load a model of one of the kinds in `packages`: `SPEECH`, `TEXT`, `VOICE` or `ALIGNERS`.

    Raises ModelError, RequestError and CapacityError, as `stapes.load` does.
    """
    from stapes.graph import NO_TRACE

    started = time.perf_counter()
    source = open_source(find_model(model))
    package = import_module(packages[model_type(source, tuple(packages))])
    options = settled_options(package, source, options)
    try:
        return package.load_source(source, str(model), options, tracer or NO_TRACE, started)
    except MemoryError:
        raise CapacityError(
            f"{model} does not fit into memory as {options.decoder_format} weights; "
            "q4 takes the least."
        ) from None


def model_type(source: ModelSource, supported: tuple[str, ...]) -> str:
    """What the files say the model is; ConfigError unless it is one of the supported types."""
    config = source.files / "config.json"
    found = model_type_in(read_json_object(config))
    said = f"{config} says model_type {found!r}"
    if found == "qwen2" and source.names_token(_VOICE_TOKEN):
        found, said = "vevo2", f"{source.path} is 'vevo2'"
    if found not in supported:
        known = " or ".join(map(repr, supported))
        kind = _OTHER_COMMANDS.get(found, "") if isinstance(found, str) else ""
        raise ConfigError(f"{said}{kind}; supported is {known}.")
    return str(found)


def model_type_in(values: Mapping[str, Any]) -> object:
    """The model_type; forced aligners share that of the recognisers, but have another head."""
    thinker, architectures = values.get("thinker_config"), values.get("architectures")
    original = isinstance(thinker, dict) and "classify_num" in thinker
    if original or architectures == ["Qwen3ASRForTokenClassification"]:
        return "qwen3_forced_aligner"
    return values.get("model_type")


def package_of(source: ModelSource) -> Any:
    """The package of a model, of whatever kind.

    It has `load_source(source, name, options, tracer, started)`, `describe(source)`, and
    DEFAULT_WEIGHTS where these are not q8.
    """
    return import_module(ALL[model_type(source, tuple(ALL))])


def settled_options(package: Any, source: ModelSource, options: RuntimeOptions) -> RuntimeOptions:
    """The options with the format that a package prefers for a checkpoint, if none is asked for."""
    from stapes.models.converted import ConvertedSource

    preferred = getattr(package, "DEFAULT_WEIGHTS", None)
    if options.weights is not None or preferred is None or isinstance(source, ConvertedSource):
        return options
    return replace(options, weights=preferred)


def open_source(path: Path) -> ModelSource:
    """The files and weights of the model in a folder or file; a file's content tells its kind.

    Raises:
        ModelError: it is no model.
    """
    from stapes.models.source import FolderSource

    if path.is_dir():
        return FolderSource(_checkpoint_folder(path))
    start = _first_bytes(path, 9)
    if start.startswith(b"GGUF"):
        from stapes.models.qwen_text.gguf import GgufSource  # brings the gguf package

        return GgufSource(path)
    from stapes.models.converted import open_converted

    # A safetensors file begins with 8 bytes of length and a JSON object.
    converted = open_converted(path) if start[8:] == b"{" else None
    if converted is None:
        raise ModelError(
            f"{path} is a file, but neither a converted model nor GGUF; a checkpoint is a folder "
            "with config.json and weights."
        )
    return converted


def _checkpoint_folder(path: Path) -> Path:
    """The folder itself, or that of the decoder in a published folder of several networks."""
    if (path / "config.json").exists():
        return path
    from stapes.models.vevo2.layout import ar_folder

    return ar_folder(path) or path


def find_model(model: str | Path) -> Path:
    """The folder or file that a model's name or path stands for; one of the hub is downloaded.

    Raises:
        ModelError: there is no such model; the message lists the bundled ones.
        RequestError: it is neither a name nor a path.
    """
    if not isinstance(model, (str, os.PathLike)):
        raise RequestError(f"A model must be a name or a path, not {type(model).__name__}.")
    if str(model) in available():
        return BUNDLED / str(model)
    path = Path(model)
    if str(model) and _is_there(path):
        return path
    name = hub_name(model)
    if name is not None:
        return _find_or_fetch(name)
    known = ", ".join(available()) or "none"
    raise ModelError(
        f"There is no model {str(model)!r}: no such folder or file; bundled are: {known};"
        " one of the Hugging Face hub is called OWNER/NAME."
    )


def _is_there(path: Path) -> bool:
    """Whether a file or folder is there; ModelError when that cannot be looked up."""
    try:
        path.stat()
    except PermissionError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    except (OSError, ValueError):  # absent, or nothing that could be a file's name
        return False
    return True


def _first_bytes(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error


def hub_name(model: str | Path) -> HubName | None:
    """The hub's model that is meant; None of what is bundled, a path, or neither."""
    if not isinstance(model, str) or model in available() or _is_there(Path(model)):
        return None
    from stapes.models.hub import parse_name

    return parse_name(model)


def _find_or_fetch(name: HubName) -> Path:
    from stapes.models import hub

    return hub.find(name) or hub.fetch(name, check_kind)


def check_kind(folder: Path, supported: tuple[str, ...] = tuple(ALL)) -> None:
    """ConfigError unless the folder's config.json names one of the supported model types."""
    from stapes.models.source import FolderSource

    model_type(FolderSource(folder), supported)
