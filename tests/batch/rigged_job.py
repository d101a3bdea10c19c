"""A whole job with the rigged model: MANIFEST OUT LOG DELAY_S [ADDRESS of a Ray cluster]."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from batch import rigged
from stapes.batch.cluster import Cluster
from stapes.batch.manifest import read_manifest
from stapes.batch.processes import Processes
from stapes.batch.results import open_results
from stapes.batch.team import Team
from stapes.options import TranscribeOptions


def main() -> None:
    manifest, out, log, delay_s, *address = sys.argv[1:]
    load = partial(rigged.load, Path(log), float(delay_s))
    with open_results(Path(out)) as results:
        tasks = read_manifest(Path(manifest), TranscribeOptions())
        todo = [task for task in tasks if not results.has(task.id)]
        with Cluster(address[0]) if address else Processes(load) as backend:
            if isinstance(backend, Cluster):
                backend.prepare(load, 1)
            for outcome in Team(backend, 2, todo).outcomes(lambda: False):
                results.write(outcome)


if __name__ == "__main__":
    main()
