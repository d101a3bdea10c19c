"""The models of a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stapes.decoder import Batch
from stapes.errors import RequestError
from stapes.models.interface import Aligner
from stapes.models.qwen3_asr.model import Transcriber
from stapes.models.qwen_text import TextModel
from stapes.models.vevo2.pipeline import VoiceModel
from stapes.models.vevo2.reference import Reference
from stapes.models.vevo2.request import VoiceOptions
from stapes.server.failures import ApiError
from stapes.server.scheduling import LiveStream

#: Makes a live stream: (model, name of the forced language or None, context, batch) -> stream.
StreamFactory = Callable[[Any, str | None, str, Batch], LiveStream]


@dataclass
class Speaker:
    """A voice model and the voices that it speaks with.

    Attributes:
        model: which it is.
        voices: recordings by the names that clients use.
        options: how a sound is made where a request does not say.
    """

    model: VoiceModel
    voices: dict[str, Reference]
    options: VoiceOptions = field(default_factory=VoiceOptions)

    def voice(self, name: str) -> Reference:
        """A registered recording. ApiError, naming those that there are, when there is none."""
        if name not in self.voices:
            raise ApiError(
                400,
                f"There is no voice {name!r:.100}; there are: {', '.join(self.voices)}.",
                "voice",
                "voice_not_found",
            )
        return self.voices[name]


@dataclass
class Served:
    """What a server has.

    Attributes:
        speech, text: models by the names that clients use.
        aligner: for word times; None: there are none.
        aligner_name: what clients call the aligner.
        open_stream: for live transcription; None: there is none.
        speakers: voice models by name.
        since: when the models were loaded, in seconds of the Unix epoch.
    """

    speech: dict[str, Transcriber] = field(default_factory=dict)
    text: dict[str, TextModel] = field(default_factory=dict)
    aligner: Aligner | None = None
    aligner_name: str = "aligner"
    open_stream: StreamFactory | None = None
    speakers: dict[str, Speaker] = field(default_factory=dict)
    since: int = field(default_factory=lambda: int(time.time()))

    @property
    def names(self) -> list[str]:
        """Of all models, as clients see them."""
        return [*self.speech, *self.text, *self.speakers]

    def add(self, name: str, model: Transcriber | TextModel | Speaker) -> None:
        """A model under a name that no other has. RequestError when one has it."""
        if name in self.names:
            raise RequestError(f"Two models are called {name!r}; name one as NAME=MODEL.")
        if isinstance(model, TextModel):
            self.text[name] = model
        elif isinstance(model, Speaker):
            self.speakers[name] = model
        else:
            self.speech[name] = model

    def transcriber(self, name: str) -> Transcriber:
        """A speech model. ApiError when there is none of that name."""
        self._check(name, name in self.speech, "transcribes no speech")
        return self.speech[name]

    def writer(self, name: str) -> TextModel:
        """A text model. ApiError when there is none of that name."""
        self._check(name, name in self.text, "writes no text")
        return self.text[name]

    def speaker(self, name: str) -> Speaker:
        """A voice model and its voices. ApiError when there is none of that name."""
        self._check(name, name in self.speakers, "does not speak")
        return self.speakers[name]

    def needed_aligner(self, param: str | None = None) -> Aligner:
        """The aligner. ApiError when there is none."""
        if self.aligner is None:
            raise ApiError(
                501, "No aligner model is loaded, so there are no word times.", param, "no_aligner"
            )
        return self.aligner

    def _check(self, name: str, is_right: bool, what_else: str) -> None:
        if is_right:
            return
        if name in self.names:
            raise ApiError(400, f"The model {name!r} {what_else}.", "model", "wrong_model")
        known = ", ".join(self.names) or "none"
        raise ApiError(
            404, f"There is no model {name!r}; loaded are: {known}.", "model", "model_not_found"
        )
