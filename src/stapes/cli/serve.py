"""`stapes serve`: models for clients of OpenAI's API, on this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stapes.api import DEFAULT_MODEL
from stapes.cli import messages
from stapes.cli.exits import DONE, INTERRUPTED
from stapes.cli.loading import open_aligner
from stapes.cli.parameters import model_options
from stapes.cli.progress import reporter_for_stderr
from stapes.cli.ready import ready_model
from stapes.cli.voices import check_voices, speaker
from stapes.errors import RequestError
from stapes.options import RuntimeOptions

if TYPE_CHECKING:
    from stapes.decoder import Batch
    from stapes.models.interface import Aligner
    from stapes.models.qwen3_asr.model import Transcriber
    from stapes.server.config import ServerConfig
    from stapes.server.served import Served
    from stapes.streaming.stream import Stream

_PACKAGES = ("fastapi", "prometheus_client", "python_multipart", "uvicorn", "websockets")
_NAMED = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)


@click.command("serve", short_help="Serve models over HTTP, as OpenAI's API does.")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="[NAME=]MODEL",
    show_default=DEFAULT_MODEL,
    help="A bundled model, one of the Hugging Face hub, a folder, or a file, of speech or of text; "
    "NAME is what clients call it. May be given several times.",
)
@click.option(
    "--aligner",
    metavar="MODEL",
    show_default="no word times",
    help="A Qwen3-ForcedAligner model, for word times and /v1/audio/alignments.",
)
@click.option(
    "--voice-model",
    metavar="[NAME=]MODEL",
    show_default="no speech is made",
    help="Vevo2, for /v1/audio/speech: its folder, or its name on the Hugging Face hub. "
    "Its weights are licensed CC-BY-NC-ND-4.0.",
)
@click.option(
    "--voice",
    "voices",
    multiple=True,
    metavar="NAME=REF[:TEXTFILE]",
    help="A voice of that model: a recording of 3 to 30 s, and a file with what is said in it. "
    "May be given several times.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen at; one that others can reach needs --api-key-file.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    metavar="PORT",
    help="TCP port; 0 takes one that is free.",
)
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Ask for one of the keys in FILE, one a line, of at least 16 characters.",
)
@click.option("--insecure", is_flag=True, help="Let anybody who reaches the address use it.")
@click.option(
    "--max-upload",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    metavar="MB",
    help="Largest request, counted as it comes.",
)
@click.option(
    "--max-queue",
    type=click.IntRange(min=0),
    default=64,
    show_default=True,
    metavar="N",
    help="Requests to a model that may wait; those beyond it are told to come again.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, 256),
    metavar="N",
    show_default="by threads and free memory",
    help="Requests to a model that run side by side.",
)
@model_options
def command(
    models: tuple[str, ...],
    aligner: str | None,
    voice_model: str | None,
    voices: tuple[str, ...],
    host: str,
    port: int,
    api_key_file: Path | None,
    insecure: bool,
    max_upload: int,
    max_queue: int,
    parallel: int | None,
    **runtime: object,
) -> int:
    """Serve models over HTTP, to whatever speaks OpenAI's API.

    Requests are decoded side by side. Ctrl-C, or SIGTERM, lets those that run finish and refuses
    new ones; a second one ends at once. docs/server.md shows clients.
    """
    _need_packages()
    from stapes.server.config import MEGABYTE, ServerConfig, read_keys

    check_voices(voice_model, voices)
    keys = read_keys(api_key_file) if api_key_file else ()
    config = ServerConfig(
        host=host,
        port=port,
        api_keys=keys,
        insecure=insecure,
        max_upload_bytes=max_upload * MEGABYTE,
        max_queue=max_queue,
    )
    options = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    wanted = Wanted(models or (DEFAULT_MODEL,), aligner, voice_model, voices)
    return serve(wanted, config, options, parallel)


@dataclass(frozen=True)
class Wanted:
    """The models to be served, as the user gave them.

    Attributes:
        models: of speech and text, each [NAME=]MODEL.
        aligner: for word times.
        voice_model, voices: [NAME=]MODEL, and NAME=REF[:TEXTFILE] for each voice.
    """

    models: Sequence[str]
    aligner: str | None = None
    voice_model: str | None = None
    voices: Sequence[str] = ()


def serve(
    wanted: Wanted,
    config: ServerConfig,
    options: RuntimeOptions,
    parallel: int | None,
) -> int:
    """Load the models, and serve them until a signal comes."""
    from stapes.server.app import create_app
    from stapes.server.run import bind, run

    with bind(config) as listening:  # first: loading may take long
        app = create_app(_loaded(wanted, options), config, parallel)
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        listening.listen()  # who reads the next line may connect at once
        messages.note(f"serving at http://{shown}:{port} (API: http://{shown}:{port}/v1)")
        if not config.is_local and not config.api_keys:
            messages.warning("--insecure", "anybody who reaches this address can use the server.")
        broken_off = run(app, config, listening, _say_stopping)
    messages.note("stopped at once." if broken_off else "stopped.")
    return INTERRUPTED if broken_off else DONE


def named(model: str) -> tuple[str, str]:
    """(what clients call a model, where it is) of NAME=MODEL or MODEL."""
    found = _NAMED.fullmatch(model)
    if found and not Path(model).exists():
        return found[1], found[2]
    path = Path(model)
    return (path.resolve().name if path.exists() else model), model


def _loaded(wanted: Wanted, options: RuntimeOptions) -> Served:
    from stapes.models import registry
    from stapes.models.qwen3_asr.model import Transcriber
    from stapes.models.qwen_text import TextModel
    from stapes.server.served import Served

    served = Served()
    if wanted.aligner is not None:
        served.aligner = open_aligner(wanted.aligner, options)
        served.aligner_name = named(wanted.aligner)[0]
    served.open_stream = partial(open_stream, served.aligner)
    if wanted.voice_model is not None:
        name, where = named(wanted.voice_model)
        served.add(name, speaker(where, wanted.voices, options))
    for given in wanted.models:
        name, where = named(given)
        path = ready_model(where, options, (*registry.SPEECH, *registry.TEXT))
        with reporter_for_stderr().loading(where):
            model = registry.load_any(path, **vars(options))
        assert isinstance(model, (Transcriber, TextModel))
        served.add(name, model)
    return served


def open_stream(
    aligner: Aligner | None, model: Transcriber, language: str | None, context: str, batch: Batch
) -> Stream:
    """A live stream of a client, whose answers share the runs of `batch`."""
    from stapes.streaming.make import make_stream

    return make_stream(model, language=language, context=context, aligner=aligner, batch=batch)


def _say_stopping(running: int) -> None:
    requests = "1 request" if running == 1 else f"{running} requests"
    messages.note(f"stopping; {requests} under way. A second signal ends them.")


def _need_packages() -> None:
    """RequestError when the extra is not installed."""
    try:
        for package in _PACKAGES:
            import_module(package)
    except ImportError as error:
        raise RequestError(
            f"The server needs the package {error.name}: pip install 'stapes[server]'."
        ) from error
