"""An answer's ids -> language and text. The tag is found by its token, never by its spelling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stapes.errors import RequestError
from stapes.text.languages import LANGUAGES, canonical_language
from stapes.text.repetition import collapse_repetitions
from stapes.text.tokenizer import Tokenizer

_PREFIX = "language "
_LEAST_CONTEXT = 3  # words


@dataclass(frozen=True)
class Answer:
    """What an answer says.

    Attributes:
        text: the transcript, repetitions collapsed.
        language: the model's word for it, or the forced one; None when it names none.
        collapsed: whether repetitions were taken out.
        text_from: how many first ids are not of the text, but of the tag before it.
    """

    text: str
    language: str | None
    collapsed: bool
    text_from: int = field(default=0, compare=False)


def parse_answer(
    token_ids: Sequence[int], tokenizer: Tokenizer, asr_text: int, forced: str | None = None
) -> Answer:
    """Split an answer at its first <asr_text> token.

    Without the token everything is text, but for a tag that was cut off before it. With a forced
    language everything is text too, but for a whole tag that the model repeats.
    """
    ids = list(token_ids)
    tagged = asr_text in ids
    at = ids.index(asr_text) if tagged else len(ids)
    head = tokenizer.decode(ids[:at]).strip()
    named = _named_language(head)
    whole = tagged and named is not None
    is_tag = whole if forced is not None else tagged or _is_cut_tag(head)
    rest = tokenizer.decode(ids[at + 1 :] if is_tag else ids)
    text, collapsed = collapse_repetitions(rest.strip())
    if tagged and named is None:
        named = _phrase_name(head)  # a language that we do not know: the model's own word for it
    language = forced or (named if is_tag else None) or None
    return Answer(text.strip(), language, collapsed, at + 1 if is_tag else 0)


def _is_cut_tag(head: str) -> bool:
    """Whether an answer is the beginning of a tag and nothing else: "language Ger"."""
    starts = (f"{_PREFIX}{name}".lower() for name in (*LANGUAGES, "None"))
    return head.startswith(_PREFIX.strip()) and any(s.startswith(head.lower()) for s in starts)


def _phrase_name(head: str) -> str | None:
    """NAME of "language NAME", or None when the answer does not begin that way."""
    return head[len(_PREFIX) :].strip() if head.lower().startswith(_PREFIX) else None


def _named_language(head: str) -> str | None:
    """The known language that "language NAME" names, "" for None, else None."""
    name = _phrase_name(head)
    if name is None or name.lower() == "none":
        return None if name is None else ""
    try:
        return canonical_language(name)
    except RequestError:
        return None


def is_within_context(text: str, context: str) -> bool:
    """Whether a transcript says nothing but what the context already holds, word for word."""
    words = _words(text)
    return bool(words) and f" {words} " in f" {_words(context)} "


def repeats_context(text: str, context: str) -> bool:
    """Whether a transcript is the whole context, once or more, and nothing else.

    A context of one or two words may well be all that was said; a longer list hardly ever is.
    """
    said, given = _words(text).split(), _words(context).split()
    if len(given) < _LEAST_CONTEXT or len(said) % len(given) or not said:
        return False
    return said == given * (len(said) // len(given))


def _words(text: str) -> str:
    kept = (char if char.isalnum() else " " for char in text.casefold())
    return " ".join("".join(kept).split())
