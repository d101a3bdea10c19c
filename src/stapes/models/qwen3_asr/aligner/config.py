"""The aligner's configuration, in either layout: Qwen3-ASR's, but for the head.

In place of the vocabulary's head there is one that tells classes of time. It is never tied,
whatever the tie flag says, which the -hf layout inherits from the recogniser's default.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stapes.errors import ConfigError
from stapes.models.config_reader import ConfigReader
from stapes.models.qwen3_asr.config import (
    LAYOUT_HF,
    LAYOUT_ORIGINAL,
    Qwen3AsrConfig,
    decoder_spec,
    encoder_spec,
)
from stapes.text.folder import Folder
from stapes.text.json_files import read_json_object, read_optional_object

_HF_HEAD = "score.weight"
_SEGMENT_TIME = "timestamp_segment_time"
_DEFAULT_SEGMENT_MS = 80.0  # of the -hf layout's processor, which need not write it down

_MAX_SEGMENT_MS = 60_000.0
_MAX_CLASSES = 1_000_000

#: What the published model was trained on; no file of it says so.
LANGUAGES = (
    "Chinese",
    "English",
    "Cantonese",
    "French",
    "German",
    "Italian",
    "Japanese",
    "Korean",
    "Portuguese",
    "Russian",
    "Spanish",
)


@dataclass(frozen=True)
class AlignerConfig(Qwen3AsrConfig):
    """All that a checkpoint's files say about the model, but for its weights.

    Attributes:
        timestamp_token_id: the prompt's mark for a time; the head is asked at each.
        segment_ms: what a class of time lasts, in milliseconds.
    """

    timestamp_token_id: int
    segment_ms: float


def read_config(folder: Folder) -> AlignerConfig:
    """Read a checkpoint folder's configuration files.

    Raises:
        ConfigError: a file or value is missing, malformed, or asks for what is not supported.
    """
    values = read_json_object(folder / "config.json")
    root = ConfigReader(values, "config.json")
    original = "thinker_config" in root
    inner = root.section("thinker_config") if original else root
    encoder_names, decoder_names = LAYOUT_ORIGINAL if original else LAYOUT_HF
    if not original:
        decoder_names = replace(decoder_names, lm_head=_HF_HEAD)
    root.require("token_classification_bias", False)
    # Nothing is generated, so that no id ends an answer.
    spec = decoder_spec(inner.section("text_config"), decoder_names, False, frozenset())
    classes = _classes(inner, values.get("id2label"))
    marks = root if "timestamp_token_id" in root else inner
    return AlignerConfig(
        encoder=encoder_spec(inner.section("audio_config")),
        encoder_names=encoder_names,
        decoder=replace(spec, logits_size=classes),
        audio_token_id=inner.integer("audio_token_id"),
        timestamp_token_id=marks.integer("timestamp_token_id"),
        segment_ms=_segment_ms(folder, root, inner),
    )


def _classes(inner: ConfigReader, labels: object) -> int:
    """Outputs of the head. transformers writes their number as a table of labels."""
    if "classify_num" not in inner and isinstance(labels, dict):
        return len(labels)
    return inner.integer("classify_num", "num_labels", at_most=_MAX_CLASSES)


def _segment_ms(folder: Folder, root: ConfigReader, inner: ConfigReader) -> float:
    name = "processor_config.json"
    processor = ConfigReader(read_optional_object(folder / name), name)
    for section in (root, inner, processor):
        if _SEGMENT_TIME in section:
            segment_ms = section.number(_SEGMENT_TIME)
            if not 0 < segment_ms <= _MAX_SEGMENT_MS:
                raise ConfigError(
                    f"{section.where}'s {_SEGMENT_TIME} is {segment_ms:g} ms, but must lie between "
                    f"0 and {_MAX_SEGMENT_MS:g}."
                )
            return segment_ms
    return _DEFAULT_SEGMENT_MS
