"""What an utterance says so far: committed ids, which stay, and a hypothesis about the rest."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from stapes.audio import SAMPLE_RATE
from stapes.decoder import FinishReason, GenerateResult, LoopDetector
from stapes.models.qwen3_asr.model import Transcriber
from stapes.models.qwen3_asr.pieces import token_budget
from stapes.models.qwen3_asr.postprocess import repeats_context
from stapes.streaming.policy import StreamPolicy
from stapes.streaming.utterances import Task
from stapes.text.joining import word_ends_between
from stapes.text.repetition import collapse_repetitions
from stapes.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Asked:
    """What is asked of every utterance: the language that is forced, or None, and the context."""

    policy: StreamPolicy
    forced: str | None = None
    context: str = ""


@dataclass(frozen=True)
class Settled:
    """Text that was committed: spoken between two samples of the stream."""

    text: str
    start: int
    end: int


class Hypothesis:
    """The answer to one utterance, as it grows.

    What is committed is decided at committing steps and at the end, from what the model answers
    there: an answer at an optional step is shown, and is the draft of the next one.

    Args:
        model: whose answers these are.
        asked: of all utterances.
        start: sample of the stream at which the utterance begins.

    Attributes:
        ids: the answer of the last look, committed ids first.
        committed: how many of them will not change.
        committed_text: what those say, without white space at its ends.
        language: of the last answer; it stays once text is committed.
        trouble: why the last answer is not believed; None when it is.
        finish_reason: of the last answer.
    """

    def __init__(self, model: Transcriber, asked: Asked, start: int) -> None:
        self._model = model
        self._asked = asked
        self._start = start
        self._text_from = 0
        self._seen: list[int] = []  # for each id: the end of the audio when it came up
        self._settled_at = start  # where the committed text was spoken, at the latest
        self._looked = start  # the end of the last look
        self._point = start  # the end of the last committing step
        self._answer_there: list[int] = []
        self.ids: list[int] = []
        self.committed = 0
        self.committed_text = ""
        self.language: str | None = asked.forced
        self.trouble: str | None = None
        self.finish_reason: FinishReason = "stop"

    @property
    def forced_ids(self) -> list[int]:
        """With what the answer has to begin."""
        return self.ids[: self.committed]

    @property
    def draft(self) -> list[int]:
        """A guess of what comes behind them."""
        return self.ids[self.committed :]

    @property
    def settled_at(self) -> int:
        """The sample of the stream by which the committed text was spoken."""
        return self._settled_at

    def budget(self, task: Task) -> int:
        """New tokens that a look may take. Of one that commits it depends on the audio alone."""
        policy = self._asked.policy
        known = self.ids if task.is_optional else self._answer_there
        since = self._looked if task.is_optional else self._point
        guessed = len(known) - self.committed
        steps = -(-(task.end - since) // round(policy.step_s * SAMPLE_RATE))
        budget = max(guessed, 0) + policy.new_tokens * max(steps, 1)
        if task.is_final:
            whole = token_budget((task.end - task.start) / SAMPLE_RATE)
            budget = max(budget, whole - self.committed)
        return budget

    def take(self, result: GenerateResult, end: int) -> None:
        """The answer to the audio up to a sample: ids behind the committed ones."""
        ids = [*self.forced_ids, *result.token_ids[: result.kept]]
        same = common_prefix(self.ids, ids)
        self._seen[same:] = [end] * (len(ids) - same)
        self.ids, self._looked = ids, end
        answer = self._model.read_answer(ids, self._asked.forced)
        if not self.committed:
            self._text_from, self.language = answer.text_from, answer.language
        self.trouble = self._trouble(result)
        self.finish_reason = result.finish_reason

    def _trouble(self, result: GenerateResult) -> str | None:
        looped = result.finish_reason == "loop" or is_loop(self.ids)
        if looped or collapse_repetitions(self._text())[1]:
            return "the model repeated itself without end"
        if repeats_context(self._text(), self._asked.context):
            return "the model gave back the context and nothing else"
        return None

    def partial(self) -> str:
        """What is heard behind the committed text, in whole characters."""
        if self.trouble is not None:
            return ""
        return self._text()[len(self.committed_text) :].rstrip()

    def commit(self, end: int) -> Settled | None:
        """Settle what the policy lets be settled at a committing step, if anything."""
        policy = self._asked.policy
        limit = len(self.ids) - policy.rollback_tokens
        if policy.commit == "agreement":
            limit = min(limit, common_prefix(self._answer_there, self.ids))
        self._point, self._answer_there = end, list(self.ids)
        if self.trouble is not None:
            return None
        first = max(self._text_from, 0)
        cut = whole_words(self.ids[first:], max(limit - first, 0), self._model.tokenizer)
        count = first + cut
        if not cut or count <= self.committed:
            return None
        text = _decode(self.ids[first:count], self._model.tokenizer).lstrip()
        return self._settle(text, count) if text else None

    def finish(self) -> Settled | None:
        """Settle all that is believed."""
        text = self._text(whole=True)[len(self.committed_text) :].rstrip()
        if self.trouble is not None or not text:
            return None
        return self._settle(self.committed_text + text, len(self.ids))

    def give_up(self) -> bool:
        """There is no last answer: what was committed is all. Whether that is anything."""
        self.ids, self.finish_reason = self.forced_ids, "cancelled"
        return bool(self.committed)

    def doubts(self, task: Task) -> list[str]:
        """What the user should know about a finished utterance."""
        where = f"{task.start / SAMPLE_RATE:.1f}-{task.end / SAMPLE_RATE:.1f} s"
        if self.trouble is not None:
            kept = "the rest" if self.committed else "it"
            return [f"{where}: {self.trouble}; {kept} has no text."]
        if self.finish_reason == "length":
            return [f"{where}: cut short after {len(self.ids)} tokens."]
        return []

    def _settle(self, text: str, count: int) -> Settled:
        start, self._settled_at = self._settled_at, max(self._seen[self.committed : count])
        delta, self.committed_text = text[len(self.committed_text) :], text
        self.committed = count
        return Settled(delta, start, self._settled_at)

    def _text(self, whole: bool = False) -> str:
        """The text of all ids; of the bytes of a character at the end nothing, or U+FFFD."""
        return _decode(self.ids[self._text_from :], self._model.tokenizer, whole).lstrip()


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many first ids are the same."""
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def is_loop(ids: Sequence[int]) -> bool:
    """Whether they repeat without end; a loop may lie across several answers."""
    detector = LoopDetector()
    return any(detector.feed(token) is not None for token in ids)


def whole_words(ids: Sequence[int], limit: int, tokenizer: Tokenizer) -> int:
    """How many first ids, at most `limit`, end with a whole word, as what follows them shows."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text, ends = "", []  # where in the text each id ends; None amid a character
    for token in ids:
        text += decoder.decode(tokenizer.token_bytes(token))
        ends.append(None if decoder.getstate()[0] else len(text))
    for count in range(min(limit, len(ids)), 0, -1):
        end = ends[count - 1]
        if end and end < len(text) and word_ends_between(text[end - 1], text[end]):
            return count
    return 0


def _decode(ids: Sequence[int], tokenizer: Tokenizer, whole: bool = False) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(b"".join(map(tokenizer.token_bytes, ids)), final=whole)
