"""Answers that advance together: one run reads the weights once for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from stapes.decoder.decoder import Decoder
from stapes.decoder.generation import Generation
from stapes.decoder.network import Want
from stapes.decoder.options import GenerateOptions
from stapes.decoder.prompt import Prompt
from stapes.decoder.rows import Rows, run_rows
from stapes.decoder.session import PREFILL_ROWS, Session
from stapes.errors import RequestError

T = TypeVar("T")


class Batch:
    """Generations of different sessions of one decoder, which join and leave between runs.

        batch = Batch(decoder)
        answers = [batch.join(decoder.new_session(), prompt, options) for prompt in prompts]
        batch.run()
        ids = [answer.result().token_ids for answer in answers]

    Each answer is what it would be alone. What goes wrong in one (its cache does not fit, its
    logits hold a NaN, its callback raises) ends that one alone: its `result` raises the error. Not
    for use from two threads at once.

    Args:
        decoder: whose sessions join.
        max_rows: rows of one run, at least one for each answer under way. What decoding leaves is
            given to prefills and drafts in the order of joining; fewer rows make prefills slower
            and the steps of the others shorter while one is read.

    Attributes:
        prefill_s, decode_s: seconds of all runs so far, shared out by their rows.
    """

    def __init__(self, decoder: Decoder, max_rows: int = PREFILL_ROWS) -> None:
        if max_rows < 1:
            raise RequestError(f"max_rows must be positive, not {max_rows}.")
        self.decoder = decoder
        self.max_rows = max_rows
        self.prefill_s = self.decode_s = 0.0
        self._active: list[Generation] = []

    def __len__(self) -> int:
        """Answers under way."""
        return len(self._active)

    def join(
        self,
        session: Session,
        prompt: Prompt,
        options: GenerateOptions,
        uniform: Callable[[], float] | None = None,
    ) -> Generation:
        """Begin an answer with the next run.

        Args:
            session: of the batch's decoder; cut back at once to what it shares with the prompt.
            prompt: the whole of the sequence.
            options: budget, sampling, draft, limits, callbacks.
            uniform: numbers in [0, 1) for drawing ids; see `generate`.

        Raises:
            RequestError, CapacityError, NumericError: the prompt or the options are wrong; see
                `generate`. Whatever goes wrong later is raised by the answer's `result`.
            RequestError: also when the session is of another decoder, or in the batch already.
        """
        if session.decoder is not self.decoder:
            raise RequestError("The session belongs to another decoder than the batch does.")
        if any(generation.session is session for generation in self._active):
            raise RequestError("The session has an answer under way in this batch already.")
        generation = Generation(session, prompt, options, uniform)
        self._active.append(generation)
        return generation

    def leave(self, generation: Generation) -> None:
        """Cancel a generation of this batch; what it has is its result.

        Nothing happens when it is finished.
        """
        generation.cancel()
        self._active = [other for other in self._active if other is not generation]

    def run(self) -> None:
        """Step until every answer is finished."""
        while self._active:
            self.step()

    def step(self) -> list[Generation]:
        """One run, of all that are under way; returns those that are finished and have left."""
        parts = self._parts()
        if parts:
            self._timed_run(parts)
        left = [generation for generation in self._active if generation.finished]
        self._active = [generation for generation in self._active if not generation.finished]
        return left

    # -- one run ---------------------------------------------------------------------------------

    def _parts(self) -> dict[Generation, Rows]:
        """The rows of the next run. Who cannot give any has failed."""
        running = [g for g in self._active if _attempt(g, Generation.should_run)]
        spare = max(self.max_rows - len(running), 0)
        parts: dict[Generation, Rows] = {}
        for generation in running:
            more = min(generation.wanted_rows - 1, spare)
            spare -= more
            rows = _attempt(generation, partial(Generation.rows, limit=more + 1))
            if rows is not None:
                parts[generation] = rows
        return parts

    def _timed_run(self, parts: dict[Generation, Rows]) -> None:
        """A run, whose time is shared out by rows between prefills and decoding."""
        counts = [(g, rows.ids.size, g.prefilled) for g, rows in parts.items()]
        prefill = sum(count for _, count, prefilled in counts if not prefilled)
        total = sum(count for _, count, _ in counts)
        started = time.perf_counter()
        self._run(parts)
        ended = time.perf_counter()
        for generation, count, prefilled in counts:
            generation.add_time((ended - started) * count / total, prefilled)
        self.prefill_s += (ended - started) * prefill / total
        self.decode_s += (ended - started) * (1 - prefill / total)
        self.decoder.tracer.stage("prefill" if prefill else "decode", started, ended)

    def _run(self, parts: dict[Generation, Rows]) -> None:
        """Run rows together; when that fails, each by itself, so that one failure stays one."""
        want: Want = "logits" if any(g.want == "logits" for g in parts) else "next"
        try:
            results = run_rows(list(parts.values()), want)
        except Exception as error:
            if len(parts) == 1:
                next(iter(parts)).fail(error)
                return
            for generation, rows in parts.items():
                self._run({generation: rows})
            return
        for generation, result in zip(parts, results, strict=True):
            _attempt(generation, partial(Generation.take, results=result))


def _attempt(generation: Generation, action: Callable[[Generation], T]) -> T | None:
    """What an action on a generation gives; None when it fails, which ends that generation."""
    try:
        return action(generation)
    except Exception as error:
        generation.fail(error)
        return None
