"""The voices of `stapes serve`: recordings with names, checked before anybody asks for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import stapes
from stapes.cli import messages
from stapes.cli.progress import reporter_for_stderr
from stapes.cli.ready import ready_voice
from stapes.errors import RequestError
from stapes.options import RuntimeOptions

if TYPE_CHECKING:
    from stapes.models.vevo2.reference import Reference
    from stapes.server.served import Speaker

_VOICE = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)


def check_voices(model: str | None, voices: Sequence[str]) -> None:
    """Make sure, before anything is loaded, that a voice model and its voices are there together.

    Raises:
        RequestError: one is given without the other, or a voice is not NAME=REF.
    """
    if model is None and voices:
        raise RequestError("--voice needs --voice-model: it is who speaks.")
    if model is not None and not voices:
        raise RequestError("--voice-model needs a --voice NAME=REF: a recording to speak like.")
    names = [_split(voice)[0] for voice in voices]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"Two voices are called {name!r}.")


def speaker(model: str, voices: Sequence[str], options: RuntimeOptions) -> Speaker:
    """A voice model with its voices, all loaded; its licence and warnings are said.

    Args:
        model: its folder, or its name on the hub.
        voices: each NAME=REF or NAME=REF:TEXTFILE.
        options: the threads and the KV cache's format; weights are in the model's own formats.

    Raises:
        ModelError, CapacityError: the model cannot be loaded.
        RequestError, AudioError: a voice cannot be used.
    """
    from stapes.server.served import Speaker

    references = dict(_reference(voice) for voice in voices)  # before loading: it is quick
    loaded = stapes.load_voice(ready_voice(model), kv=options.kv, threads=options.threads)
    messages.note(f"the weights of {model} are licensed {loaded.license}")
    with reporter_for_stderr().loading(model):
        warnings = {name: loaded.prepare_voice(each) for name, each in references.items()}
    for name, sentences in warnings.items():
        for sentence in sentences:
            messages.warning(name, sentence)
    return Speaker(loaded, references)


def _reference(voice: str) -> tuple[str, Reference]:
    from stapes.models.vevo2.reference import read_reference

    name, recording, text = _split(voice)
    return name, read_reference(str(recording), None if text is None else _text(text))


def _split(voice: str) -> tuple[str, Path, Path | None]:
    """(name, recording, file of its text) of NAME=REF[:TEXTFILE]; a colon may be in REF's name."""
    found = _VOICE.fullmatch(voice)
    if found is None:
        raise RequestError(f"--voice is NAME=REF or NAME=REF:TEXTFILE, not {voice!r}.")
    name, files = found.groups()
    recording, colon, text = files.rpartition(":")
    if Path(files).exists() or not (colon and recording and text):
        return name, Path(files), None
    return name, Path(recording), Path(text)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not UTF-8 text: byte {error.start} is wrong.") from error
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error
