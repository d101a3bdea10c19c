"""Workers that are actors of a Ray cluster, which the extra `ray` brings.

Every node needs stapes, and finds the model and the recordings under the same paths as here. The
results are written here alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from stapes.batch.task import Died, Message, Task
from stapes.batch.transcriber import Load, Transcriber
from stapes.errors import RequestError

LOCAL = "local"


@dataclass(frozen=True, eq=False)
class _Worker:
    actor: Any


class Cluster:
    """A connection to a cluster, and a `team.Backend` once `prepare` has said what is to be run."""

    def __init__(self, address: str) -> None:
        """Connect to a cluster.

        Args:
            address: "auto" of the cluster that this machine belongs to, HOST:PORT or ray://...;
                "local" starts one here, which ends with this connection.

        Raises:
            RequestError: Ray is not installed, or there is no such cluster.
        """
        self._ray = _connected(address)
        self._actors: Any = None
        self._load: Load | None = None
        self._waiting: dict[Any, _Worker] = {}  # a reference to what is to come -> whose it is

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ray.shutdown()  # ends the actors of this connection

    def node_processors(self) -> list[int]:
        """Processors of each node that is alive and has any."""
        nodes = (node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"])
        return [int(processors) for processors in nodes if processors >= 1]

    def prepare(self, load: Load, threads: int) -> None:
        """Say how a worker loads its model, and how many processors it takes of a node."""
        self._load = load
        # We start another one ourselves: only so its task is given to somebody else at once.
        self._actors = self._ray.remote(num_cpus=threads, max_restarts=0)(Transcriber)

    def start(self) -> _Worker:
        """See `Backend`."""
        worker = _Worker(self._actors.remote(self._load))
        self._waiting[worker.actor.load.remote()] = worker
        return worker

    def send(self, worker: _Worker, task: Task) -> None:
        """See `Backend`."""
        self._waiting[worker.actor.transcribe.remote(task)] = worker

    def receive(self, timeout_s: float) -> list[tuple[_Worker, Message]]:
        """See `Backend`."""
        references = list(self._waiting)
        if not references:
            return []
        ready, _ = self._ray.wait(references, num_returns=1, timeout=timeout_s)
        if ready:  # and what else there is by now
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        return [(self._waiting.pop(reference), self._said(reference)) for reference in ready]

    def stop(self, worker: _Worker) -> None:
        """See `Backend`."""
        self._waiting = {ref: other for ref, other in self._waiting.items() if other is not worker}
        self._ray.kill(worker.actor)

    def _said(self, reference: Any) -> Message:
        try:
            message: Message = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return Died(_how(error))
        return message


def shares(processors: list[int], workers: int | None, threads: int | None) -> tuple[int, int]:
    """Workers and the threads of each, for nodes with so many processors.

    Without a number of workers, as many as there is room for: with the threads that are given, else
    one a node.
    """
    smallest = min(processors, default=1)
    if workers is None:
        room = sum(count // threads for count in processors) if threads else len(processors)
        workers = max(1, room)
    if threads is None:
        a_node = -(-workers // max(1, len(processors)))
        threads = max(1, smallest // a_node)
    return workers, threads


def _connected(address: str) -> Any:
    try:
        import ray
    except ImportError as error:
        raise RequestError(
            "--ray needs the package ray, which comes with: pip install 'stapes[ray]'."
        ) from error
    local = {"include_dashboard": False} if address == LOCAL else {}
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise RequestError(_unreachable(address, error)) from error
    return ray


def _unreachable(address: str, error: Exception) -> str:
    # Ray names it in a cause alone. Clusters of `ray start` ask for a token unless told otherwise.
    if "AuthenticationError" in f"{error}{error.__cause__}":
        return (
            f"the Ray cluster at {address!r} asks for its token, which Ray takes from where "
            "RAY_AUTH_TOKEN_PATH says when RAY_AUTH_MODE is token."
        )
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    return f"there is no Ray cluster at {address!r}: {reason}."


def _how(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"ended with {type(error).__name__}: {(lines or ['no message'])[-1].rstrip('.')}"
