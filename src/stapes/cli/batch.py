"""`stapes batch`: the recordings of a manifest, by several workers, into a file of results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stapes.cli import messages
from stapes.cli.exits import AUDIO, CAPACITY, DONE, INTERRUPTED, MODEL, USAGE
from stapes.cli.interrupt import interruptible
from stapes.cli.parameters import model_option, model_options
from stapes.cli.transcribe import command as transcribe
from stapes.errors import RequestError
from stapes.options import RuntimeOptions, TranscribeOptions

if TYPE_CHECKING:
    from stapes.batch.results import Results
    from stapes.batch.task import Task
    from stapes.batch.team import Backend

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# Of the kinds in `stapes.batch.task`; 1, as of any program's own mistake, for the one left out.
_CODES = {
    "request": USAGE,
    "audio": AUDIO,
    "model": MODEL,
    "capacity": CAPACITY,
    "worker": CAPACITY,
}


@dataclass(frozen=True)
class Job:
    """What one call of the command asks for."""

    manifest: Path
    out: Path
    model: str
    workers: int | None
    ray: str | None
    retry_failed: bool
    runtime: RuntimeOptions
    options: TranscribeOptions


def _as_in_transcribe(*names: str) -> Callable[[Decorated], Decorated]:
    """The options of `stapes transcribe` that are called so, listed there."""
    options = {parameter.name: parameter for parameter in transcribe.params}

    def decorate(function: Decorated) -> Decorated:
        listed = function.__dict__.setdefault("__click_params__", [])
        listed += [options[name] for name in reversed(names)]
        return function

    return decorate


@click.command("batch", short_help="Transcribe the recordings of a manifest by many workers.")
@click.argument("manifest", metavar="MANIFEST", type=click.Path(path_type=Path))
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File of results, a line of JSON each; what is there is gone on with.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="1, or one a node of a cluster",
    help="Processes, or actors of a cluster, that each transcribe a recording at a time.",
)
@click.option("--retry-failed", is_flag=True, help="Try again what failed before.")
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Work on a Ray cluster: HOST:PORT, auto for this machine's, local to start one here.",
)
@model_option
@_as_in_transcribe("language", "context")
@model_options
@_as_in_transcribe("max_new_tokens", "batch", "chunk_seconds", "no_vad")
def command(
    manifest: Path,
    out: Path,
    workers: int | None,
    retry_failed: bool,
    ray: str | None,
    model: str,
    language: str | None,
    context: str,
    max_new_tokens: int | None,
    batch: int | None,
    chunk_seconds: float,
    no_vad: bool,
    **runtime: object,
) -> int:
    """Transcribe the recordings of a manifest, and go on where an earlier call was ended.

    Each line of MANIFEST is a JSON object: "audio" is a path, relative to the manifest's folder;
    "id" names the entry, and is "audio" by default; language, context, max_new_tokens, batch,
    chunk_seconds, vad and loop_detection take the place of this command's options.

    Each line of FILE has "id", "audio" and what `stapes transcribe --format json` prints, or
    "error" and "kind". Lines come as recordings are finished. Whatever ends the job, the same
    command goes on with it: entries that have a line are left out.

    --threads are those of each worker, by default an equal share. Several processes share one
    model in memory; a model that is no converted file is packed into one for as long as it takes.
    """
    from stapes.text.languages import canonical_language

    held = RuntimeOptions(**runtime)  # type: ignore[arg-type]
    options = TranscribeOptions(
        language=None if language is None else canonical_language(language),
        context=context,
        max_new_tokens=max_new_tokens,
        batch=batch,
        chunk_seconds=chunk_seconds,
        vad=not no_vad,
    )
    return run(Job(manifest, out, model, workers, ray, retry_failed, held, options))


def run(job: Job) -> int:
    """Do the job: everything that can be refused is refused before a model is loaded."""
    from stapes.batch.manifest import read_manifest
    from stapes.batch.results import open_results

    tasks = read_manifest(job.manifest, job.options)
    if job.out.exists() and job.out.samefile(job.manifest):
        raise RequestError(f"{job.out} is the manifest itself, which would be lost.")
    with open_results(job.out) as results:
        if results.torn:
            messages.note(f"{job.out} ended in the middle of a line, which is done again.")
        todo = _todo(tasks, results, job.retry_failed)
        if len(todo) < len(tasks):
            messages.note(f"{len(tasks) - len(todo)} of {len(tasks)} recordings are done already.")
        try:
            is_finished = not todo or _work(job, todo, results)
        except KeyboardInterrupt:  # while the workers were made ready, or the second Ctrl-C
            is_finished = False
        return _summary(job, tasks, results) if is_finished else _interrupted(tasks, results)


def _todo(tasks: Iterable[Task], results: Results, retry_failed: bool) -> list[Task]:
    """The entries without a line, once those that are tried again have lost theirs."""
    if retry_failed:
        results.forget([task.id for task in tasks])
    return [task for task in tasks if not results.has(task.id)]


def _work(job: Job, todo: list[Task], results: Results) -> bool:
    """Do what is to be done; False when Ctrl-C ended it."""
    from stapes.batch.team import Team
    from stapes.cli.batch_progress import JobProgress

    progress = JobProgress(len(todo), sys.stderr is not None and sys.stderr.isatty())
    with _workers(job, len(todo)) as (backend, workers), interruptible() as is_interrupted:
        for outcome in Team(backend, workers, todo).outcomes(is_interrupted):
            results.write(outcome)
            if outcome.kind is not None:
                progress.clear()
                sentence = str(outcome.fields["error"])
                messages.error(messages.about(outcome.task.audio, sentence))
            progress.count(outcome)
        progress.clear()
        return not is_interrupted()


@contextmanager
def _workers(job: Job, tasks: int) -> Iterator[tuple[Backend[Any], int]]:
    """The kind of workers that is asked for, and their number."""
    if job.ray is not None:
        with _cluster(job, job.ray, tasks) as found:
            yield found
        return
    from stapes.batch.processes import Processes
    from stapes.batch.shared_model import is_shared, packed_for_all
    from stapes.batch.transcriber import ModelLoader
    from stapes.cli.ready import ready_model
    from stapes.models.registry import SPEECH
    from stapes.system import default_threads

    workers = min(job.workers or 1, tasks)
    threads = job.runtime.threads or max(1, default_threads() // workers)
    runtime = replace(job.runtime, threads=threads)
    model = ready_model(job.model, job.runtime, SPEECH)
    if workers == 1 or is_shared(model):
        with Processes(ModelLoader(model, job.model, runtime)) as processes:
            yield processes, workers
        return
    packed = job.out.with_name(f"{job.out.name}.model.tmp")
    messages.note(f"packing {job.model} once for {workers} workers, as {packed} until they end.")
    with (
        packed_for_all(model, runtime, packed) as file,
        Processes(ModelLoader(file, job.model, runtime)) as processes,
    ):
        yield processes, workers


@contextmanager
def _cluster(job: Job, address: str, tasks: int) -> Iterator[tuple[Backend[Any], int]]:
    from stapes.batch.cluster import Cluster, shares
    from stapes.batch.shared_model import absolute
    from stapes.batch.transcriber import ModelLoader

    with Cluster(address) as cluster:
        processors = cluster.node_processors()
        workers, threads = shares(processors, job.workers, job.runtime.threads)
        runtime = replace(job.runtime, threads=threads)
        cluster.prepare(ModelLoader(absolute(job.model), job.model, runtime), threads)
        workers = min(workers, tasks)
        messages.note(f"nodes: {len(processors)}, workers: {workers}, threads of each: {threads}.")
        yield cluster, workers


def _summary(job: Job, tasks: list[Task], results: Results) -> int:
    """Say what the job came to; the worst of its failures is the code, also of earlier calls."""
    failed = [results.failed[task.id] for task in tasks if task.id in results.failed]
    messages.note(f"{len(tasks) - len(failed)} of {len(tasks)} recordings are in {job.out}.")
    if not failed:
        return DONE
    messages.error(f"{len(failed)} failed; --retry-failed tries them again.")
    return max(_CODES.get(kind, 1) for kind in failed)


def _interrupted(tasks: list[Task], results: Results) -> int:
    done = sum(results.has(task.id) for task in tasks)
    messages.error(
        f"interrupted: {done} of {len(tasks)} recordings are done; "
        "the same command goes on with the others."
    )
    return INTERRUPTED
