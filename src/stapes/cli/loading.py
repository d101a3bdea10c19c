"""Loads the models that commands name: downloaded and converted first if need be, and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stapes.options import RuntimeOptions

if TYPE_CHECKING:
    from stapes.graph import Tracer
    from stapes.models.interface import SpeechModel
    from stapes.models.qwen3_asr.aligner import ForcedAligner


def open_speech(name: str, runtime: RuntimeOptions, tracer: Tracer | None = None) -> SpeechModel:
    """The speech model of a name; errors are those of `ready_model` and of `stapes.load`."""
    import stapes
    from stapes.cli.progress import reporter_for_stderr
    from stapes.cli.ready import ready_model
    from stapes.models.registry import SPEECH

    path = ready_model(name, runtime, SPEECH)
    with reporter_for_stderr().loading(name):
        return stapes.load(path, **vars(runtime), tracer=tracer)


def open_aligner(name: str, runtime: RuntimeOptions, tracer: Tracer | None = None) -> ForcedAligner:
    """The forced aligner of a name; errors are those of `open_speech`."""
    import stapes
    from stapes.cli.progress import reporter_for_stderr
    from stapes.cli.ready import ready_model
    from stapes.models.registry import ALIGNERS

    path = ready_model(name, runtime, ALIGNERS)
    with reporter_for_stderr().loading(name):
        return stapes.load_aligner(path, **vars(runtime), tracer=tracer)
