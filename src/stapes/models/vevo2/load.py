"""Opens a published folder of Vevo2 as a model that speaks.

It is also what the registry knows: `load_source` is that of the autoregressive stage, the part that
converting and benchmarks work on; `describe` tells of all of them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from stapes.errors import ModelError
from stapes.graph import NO_TRACE, NoTracer
from stapes.models.description import Description
from stapes.models.registry import VOICE, model_type
from stapes.models.source import FolderSource, ModelSource
from stapes.models.vevo2.acoustic.load import WEIGHTS as ACOUSTIC_WEIGHTS
from stapes.models.vevo2.autoregressive import load as ar
from stapes.models.vevo2.description import further_parts
from stapes.models.vevo2.layout import find_layout
from stapes.models.vevo2.parts import TOKENIZER_WEIGHTS, PartFormats, Parts
from stapes.models.vevo2.pipeline import VoiceModel
from stapes.options import RuntimeOptions, WeightFormat

DEFAULT_WEIGHTS = ar.DEFAULT_WEIGHTS
load_source = ar.load_source


def describe(source: ModelSource) -> Description:
    """See `models.description.Description`; of a folder, with all parts around the stage."""
    told = ar.describe(source)
    if not source.path.is_dir():
        return told
    return replace(told, further=further_parts(find_layout(source.path)))


def open_voice(
    model: str | Path,
    path: Path,
    options: RuntimeOptions,
    acoustic: WeightFormat | None = None,
    whisper: Path | None = None,
    tracer: NoTracer | None = None,
) -> VoiceModel:
    """A model whose parts are loaded when they are needed.

    Args:
        model: what it is called.
        path: the root of the published folder, or the folder of the autoregressive stage in it.
        options: of the autoregressive stage; its encoder_weights are the format of the tokenizers.
        acoustic: format of flow matching and vocoder.
        whisper: where Whisper medium is; None looks inside the folder and beside it.
        tracer: records the runs.

    Raises:
        ModelError: it is no folder of Vevo2. RequestError: a format is unknown.
    """
    if path.is_file():
        raise ModelError(
            f"{path} is a file; a voice model is a folder, since it has more networks than a "
            "converted file or GGUF holds."
        )
    if not path.is_dir():
        raise ModelError(f"{path} does not exist.")
    checked = RuntimeOptions(options.weights, options.kv, options.threads, acoustic)
    if (path / "config.json").exists():
        model_type(FolderSource(path), tuple(VOICE))
    formats = PartFormats(
        options,
        tokenizers=options.encoder_weights or TOKENIZER_WEIGHTS,
        acoustic=checked.encoder_weights or ACOUSTIC_WEIGHTS,
    )
    place = None if whisper is None else Path(os.path.abspath(whisper))
    return VoiceModel(str(model), Parts(find_layout(path), formats, place, tracer or NO_TRACE))
