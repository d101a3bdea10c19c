"""What the parts of a published folder are, said from their headers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stapes.decoder.weights import Shapes
from stapes.errors import ModelError
from stapes.models.description import FurtherPart, Part
from stapes.models.vevo2.acoustic import flow_weights, vocoder_weights
from stapes.models.vevo2.acoustic.config import flow_matching_spec, vocoder_spec
from stapes.models.vevo2.acoustic.load import WEIGHTS as ACOUSTIC_WEIGHTS
from stapes.models.vevo2.layout import Vevo2Layout
from stapes.models.vevo2.parts import TOKENIZER_WEIGHTS
from stapes.models.vevo2.published import whisper_of
from stapes.models.vevo2.tokenizers import coco_weights, whisper_weights
from stapes.models.vevo2.tokenizers.whisper_files import open_whisper
from stapes.tensors import check_tensors, open_safetensors
from stapes.tensors.torch_file import TorchFile

Told = tuple[Part, tuple[Path, ...]]


def further_parts(layout: Vevo2Layout) -> dict[str, FurtherPart]:
    """All parts but the autoregressive stage; none of a folder that holds that stage alone."""
    if layout.root is None:
        return {}
    told: dict[str, Callable[[Vevo2Layout], Told]] = {
        "whisper": _whisper,
        "content_style_tokenizer": lambda at: _coco(at, "content_style_tokenizer"),
        "prosody_tokenizer": lambda at: _coco(at, "prosody_tokenizer"),
    }
    acoustic: dict[str, Callable[[Vevo2Layout], Told]] = {
        "flow_matching": _flow_matching,
        "vocoder": _vocoder,
    }
    return {
        **{name: _further(layout, tell, is_encoder=True) for name, tell in told.items()},
        **{name: _further(layout, tell, is_encoder=False) for name, tell in acoustic.items()},
    }


def _further(
    layout: Vevo2Layout, tell: Callable[[Vevo2Layout], Told], *, is_encoder: bool
) -> FurtherPart:
    weights = TOKENIZER_WEIGHTS if is_encoder else ACOUSTIC_WEIGHTS
    try:
        part, files = tell(layout)
    except ModelError as error:
        return FurtherPart(None, weights, is_encoder, missing=str(error))
    return FurtherPart(part, weights, is_encoder, files)


def _whisper(layout: Vevo2Layout) -> Told:
    path = whisper_of(layout)
    with open_whisper(path) as file:
        part = _part(file.spec, whisper_weights.expected_tensors(file.spec, file.names))
        store = file.store
        return part, (store.path,) if isinstance(store, TorchFile) else store.files


def _coco(layout: Vevo2Layout, name: str) -> Told:
    folder = layout.folder(name)
    with open_safetensors(folder) as store:
        spec = coco_weights.spec_from_tensors(store, str(folder))
        shapes = coco_weights.expected_tensors(spec)
        check_tensors(store, shapes, ignored=coco_weights.is_unused)
        return _part(spec, shapes), store.files


def _flow_matching(layout: Vevo2Layout) -> Told:
    spec = flow_matching_spec(layout.config("flow_matching"))
    shapes = flow_weights.expected_tensors(spec)
    with open_safetensors(layout.folder("flow_matching")) as store:
        check_tensors(store, shapes, ignored=flow_weights.is_surplus)
        return _part(spec, shapes), store.files


def _vocoder(layout: Vevo2Layout) -> Told:
    spec = vocoder_spec(layout.config("vocoder"))
    shapes = vocoder_weights.expected_tensors(spec)
    with open_safetensors(layout.folder("vocoder")) as store:
        check_tensors(store, shapes)
        return _part(spec, shapes), store.files


def _part(spec: Any, shapes: Shapes) -> Part:
    sizes = {name: value for name, value in asdict(spec).items() if isinstance(value, int)}
    return Part(sizes, shapes)
