"""A command line whose model is a fake that answers from a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import stapes
from stapes import Timings, TokenCounts, Transcript
from stapes.cli import main

TRANSCRIPT = Transcript(
    text="one two three",
    language="English",
    duration_s=1.25,
    model="fake",
    finish_reason="stop",
    truncated=False,
    warnings=(),
    token_ids=(11, 12, 13),
    tokens=TokenCounts(prompt=30, audio=16, new=3),
    timings_s=Timings(0.5, 0.01, 0.02, 0.03, 0.04, 0.05, 0.15),
)

Answer = Transcript | BaseException


@dataclass
class FakeModel:
    """Answers by the name of the source; a source that is not in the table gets TRANSCRIPT."""

    answers: dict[str, Answer] = field(default_factory=dict)
    events: list[tuple[str, Any]] = field(default_factory=list)
    load_error: BaseException | None = None
    name: str = "fake"
    load_s: float = 0.5

    def load(self, model: object, **options: object) -> FakeModel:
        self.events.append(("load", (model, options)))
        if self.load_error is not None:
            raise self.load_error
        return self

    def transcribe(self, source: Any, **options: Any) -> Transcript:
        on_progress = options.pop("on_progress")
        assert not options.pop("should_cancel")()
        if options["aligner"] is None:
            del options["aligner"]
        if not isinstance(source, str):
            source = source.read()
        self.events.append(("transcribe", (source, options)))
        if on_progress is not None:
            on_progress(0.5, 1.25)
        answer = self.answers.get(source, TRANSCRIPT) if isinstance(source, str) else TRANSCRIPT
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def said(self, text: str, **fields: Any) -> Transcript:
        return replace(TRANSCRIPT, text=text, **fields)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel()
    monkeypatch.setattr(stapes, "load", fake.load)
    return fake


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command in this process and returns its exit code and what it printed."""

    def run(*argv: str) -> Ran:
        code = main(argv)
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return run
