"""Handing out tasks, with workers whose ends are scripted."""

from __future__ import annotations

from collections import deque
from itertools import count

import pytest

from batch.rigged import task
from stapes.batch.task import WORKER, Died, Message, Outcome, Ready, Task
from stapes.batch.team import Team
from stapes.errors import CapacityError, ModelError


class Scripted:
    """Workers are numbers; `fatal` tasks kill so many of them, `starts` are their first words."""

    def __init__(self, fatal: dict[str, int] | None = None, starts: list[Message] | None = None):
        self.fatal = fatal or {}
        self.starts = deque(starts or [])
        self.numbers = count()
        self.alive: set[int] = set()
        self.most_alive = 0
        self.said: deque[tuple[int, Message]] = deque()
        self.given: list[str] = []

    def start(self) -> int:
        worker = next(self.numbers)
        self.alive.add(worker)
        self.most_alive = max(self.most_alive, len(self.alive))
        self.said.append((worker, self.starts.popleft() if self.starts else Ready()))
        return worker

    def send(self, worker: int, given: Task) -> None:
        assert worker in self.alive
        self.given.append(given.id)
        if self.fatal.get(given.id, 0):
            self.fatal[given.id] -= 1
            self.said.append((worker, Died("was ended")))
        else:
            self.said.append((worker, Outcome(given, {"text": given.id})))

    def receive(self, timeout_s: float) -> list[tuple[int, Message]]:
        return [self.said.popleft()] if self.said else []

    def stop(self, worker: int) -> None:
        self.alive.remove(worker)


def run(backend: Scripted, workers: int, names: str) -> list[Outcome]:
    return list(Team(backend, workers, map(task, names)).outcomes(lambda: False))


def test_every_task_once():
    backend = Scripted()
    outcomes = run(backend, 3, "abcdefgh")
    assert sorted(o.task.id for o in outcomes) == list("abcdefgh") == sorted(backend.given)
    assert backend.most_alive == 3


def test_no_more_workers_than_tasks():
    backend = Scripted()
    run(backend, 5, "ab")
    assert backend.most_alive == 2


def test_a_task_whose_worker_dies_is_given_to_another_once():
    backend = Scripted(fatal={"b": 1})
    outcomes = run(backend, 1, "abc")
    assert [(o.task.id, o.kind) for o in outcomes] == [("a", None), ("c", None), ("b", None)]
    assert backend.given == ["a", "b", "c", "b"]
    assert next(backend.numbers) == 2


def test_a_task_that_kills_twice_has_failed_and_the_others_go_on():
    backend = Scripted(fatal={"b": 9})
    outcomes = {o.task.id: o for o in run(backend, 2, "abcd")}
    assert [outcomes[name].kind for name in "acd"] == [None] * 3
    assert outcomes["b"].kind == WORKER
    assert outcomes["b"].fields["error"] == (
        "2 workers ended while they transcribed it, and the last one was ended."
    )
    assert backend.given.count("b") == 2


def test_a_worker_that_dies_while_it_loads_is_replaced():
    backend = Scripted(starts=[Died("was ended"), Died("was ended")])
    assert [o.task.id for o in run(backend, 1, "ab")] == ["a", "b"]


def test_workers_that_always_die_while_they_load_end_the_job():
    backend = Scripted(starts=[Died("was ended")] * 5)
    with pytest.raises(CapacityError, match=r"3 workers in a row .* was ended: try fewer"):
        run(backend, 1, "ab")


def test_a_model_that_does_not_load_ends_the_job():
    with pytest.raises(ModelError, match="damaged"):
        run(Scripted(starts=[Ready(), ModelError("damaged")]), 2, "ab")


def test_told_to_stop_it_gives_what_has_ended_and_starts_nothing():
    backend = Scripted()
    seen: list[str] = []
    for outcome in Team(backend, 2, map(task, "abcd")).outcomes(lambda: len(seen) == 1):
        seen.append(outcome.task.id)
    assert seen == ["a", "b"]  # b had ended, too, when the question was asked
    assert backend.given == ["a", "b"]
