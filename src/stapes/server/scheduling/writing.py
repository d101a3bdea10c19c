"""An answer of a text model, written beside others'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from stapes.decoder import Generation
from stapes.models.qwen_text import Answer, TextModel, TextOptions
from stapes.server.scheduling.lane import Lane
from stapes.server.scheduling.task import Task, Tell, Update


class StopText:
    """Hands text on up to the first of some stop sequences, which is not handed on itself.

    Text that may become a stop sequence is held back until it is known.
    """

    def __init__(self, stops: Sequence[str], write: Callable[[str], None]) -> None:
        self._stops, self._write = [stop for stop in stops if stop], write
        self._held = ""
        self.found = False

    def feed(self, text: str) -> None:
        """The next text."""
        if self.found:
            return
        self._held += text
        places = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if places:
            self.found = True
            self._hand_on(min(places))
            self._held = ""
            return
        self._hand_on(len(self._held) - self._open_end())

    def flush(self) -> None:
        """The end: what was held back was no stop sequence."""
        self._hand_on(len(self._held))

    def _open_end(self) -> int:
        """Length of the longest end of the held text with which a stop sequence begins."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        lengths = range(min(longest, len(self._held)), 0, -1)
        ends = (n for n in lengths if any(s.startswith(self._held[-n:]) for s in self._stops))
        return next(ends, 0)

    def _hand_on(self, count: int) -> None:
        if count:
            self._write(self._held[:count])
            self._held = self._held[count:]


class WritingTask(Task):
    """Tells an `Update` with each bit of text, and the `Answer`.

    Args:
        tell: see `Task`.
        model: that writes.
        prompt_ids: the whole prompt.
        options: see `TextOptions`.
        stops: texts before which the answer ends.
    """

    def __init__(
        self,
        tell: Tell,
        model: TextModel,
        prompt_ids: Sequence[int],
        options: TextOptions,
        stops: Sequence[str] = (),
    ) -> None:
        super().__init__(tell)
        self._pieces: list[str] = []
        self._text = StopText(stops, self._tell_text)
        self._writing = model.begin(
            prompt_ids, options, self._text.feed, should_cancel=lambda: self._text.found
        )
        self._lane: Lane | None = None
        self._generation: Generation | None = None
        self._answer: Answer | None = None

    @property
    def running(self) -> int:
        """See `Task`."""
        return int(self._generation is not None)

    def begin(self, lane: Lane) -> None:
        """See `Task`."""
        self._lane = lane

    def work(self, may_add: bool) -> bool:
        """See `Task`: join the batch."""
        del may_add  # it is the first and only one
        if self._generation is not None or self._answer is not None or self._lane is None:
            return False
        prompt = self._writing.prompt
        session = self._lane.sessions.take(prompt)
        try:
            self._generation = self._lane.batch.join(session, prompt, self._writing.options)
        except Exception:
            self._lane.sessions.give(session)
            raise
        return True

    def owns(self, generation: Generation) -> bool:
        """See `Task`."""
        return generation is self._generation

    def take(self, generation: Generation) -> None:
        """See `Task`."""
        answer = self._writing.finish(generation.result())
        self._text.flush()
        if self._text.found:
            answer = replace(answer, text="".join(self._pieces), finish_reason="stop")
        self._answer = answer

    @property
    def done(self) -> bool:
        """See `Task`."""
        return self._answer is not None

    def result(self) -> Answer | None:
        """See `Task`."""
        return self._answer

    def close(self) -> None:
        """See `Task`."""
        if self._generation is not None and self._lane is not None:
            self._lane.batch.leave(self._generation)
            self._lane.sessions.give(self._generation.session)
            self._generation = None

    def _tell_text(self, text: str) -> None:
        self._pieces.append(text)
        self.tell(Update(text))
