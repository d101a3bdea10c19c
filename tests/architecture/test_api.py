"""`stapes.load`: hands on what it is given, with the defaults that the options have."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields
from types import SimpleNamespace

import stapes
import stapes.models
from stapes.options import RuntimeOptions, TranscribeOptions


def defaults(function) -> dict[str, object]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def test_load_delegates_to_the_registry(monkeypatch):
    registry = SimpleNamespace(load=lambda *args, **options: (args, options))
    monkeypatch.setitem(sys.modules, "stapes.models.registry", registry)
    monkeypatch.setattr(stapes.models, "registry", registry, raising=False)
    options = {"weights": "bf16", "encoder_weights": "q8", "kv": "f32", "threads": 3}
    options |= {"activation_bits": 13}
    given = stapes.load("folder", **options)
    assert given == (("folder",), options | {"tracer": None})


def test_load_takes_the_runtime_options():
    runtime = {f.name: f.default for f in fields(RuntimeOptions)}
    assert defaults(stapes.load) == runtime | {"tracer": None}


def test_transcribe_takes_the_options_of_a_transcription():
    taken = defaults(stapes.SpeechModel.transcribe)
    beside = dict.fromkeys(("sample_rate", "aligner", "on_progress", "on_segment", "should_cancel"))
    assert taken == beside | {f.name: f.default for f in fields(TranscribeOptions)}
