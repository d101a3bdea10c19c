"""POST /v1/chat/completions and /v1/completions."""

from __future__ import annotations

import asyncio
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stapes.models.qwen_text import Answer, TextModel, TextOptions
from stapes.server.channel import Channel
from stapes.server.config import MEGABYTE
from stapes.server.fields import ChatFields, CompletionFields, WritingFields, read_fields
from stapes.server.scheduling import Place, Update, WritingTask
from stapes.server.shared import Shared, shared_of
from stapes.server.sse import DONE, EventStream, event
from stapes.server.uploads import read_body

router = APIRouter()

Object = dict[str, Any]
_MOST_BODY_BYTES = 8 * MEGABYTE
_COMPLETION_TOKENS = 16  # OpenAI's default for plain completions


@dataclass(frozen=True)
class Shape(ABC):
    """How one answer looks as JSON, whole and in parts."""

    model: str
    id: str
    created: int = field(default_factory=lambda: int(time.time()))

    @abstractmethod
    def whole(self, answer: Answer) -> Object:
        """The response."""

    @abstractmethod
    def beginning(self) -> list[Object]:
        """Events before the text."""

    @abstractmethod
    def part(self, text: str) -> Object:
        """The event of some text."""

    @abstractmethod
    def end(self, reason: str) -> Object:
        """The event that ends the text."""

    @abstractmethod
    def envelope(self, choices: list[Object], whole: bool) -> Object:
        """What is around the choices of a response or an event."""

    def usage_event(self, answer: Answer) -> Object:
        """The event with the counts."""
        return self.envelope([], whole=False) | {"usage": usage(answer)}


class ChatShape(Shape):
    """Of a chat."""

    def envelope(self, choices: list[Object], whole: bool) -> Object:
        """See `Shape`."""
        kind = "chat.completion" if whole else "chat.completion.chunk"
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def whole(self, answer: Answer) -> Object:
        """See `Shape`."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": answer.finish_reason,
        }
        return self.envelope([choice], whole=True) | {"usage": usage(answer)} | notes(answer)

    def beginning(self) -> list[Object]:
        """See `Shape`."""
        return [self._event({"role": "assistant", "content": ""})]

    def part(self, text: str) -> Object:
        """See `Shape`."""
        return self._event({"content": text})

    def end(self, reason: str) -> Object:
        """See `Shape`."""
        return self._event({}, reason)

    def _event(self, delta: Object, reason: str | None = None) -> Object:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self.envelope([choice], whole=False)


class CompletionShape(Shape):
    """Of a plain completion."""

    def envelope(self, choices: list[Object], whole: bool) -> Object:
        """See `Shape`."""
        del whole  # both are called the same
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def whole(self, answer: Answer) -> Object:
        """See `Shape`."""
        choice = _completion_choice(answer.text, answer.finish_reason)
        return self.envelope([choice], whole=True) | {"usage": usage(answer)} | notes(answer)

    def beginning(self) -> list[Object]:
        """See `Shape`."""
        return []

    def part(self, text: str) -> Object:
        """See `Shape`."""
        return self.envelope([_completion_choice(text, None)], whole=False)

    def end(self, reason: str) -> Object:
        """See `Shape`."""
        return self.envelope([_completion_choice("", reason)], whole=False)


def _completion_choice(text: str, reason: str | None) -> Object:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}


def usage(answer: Answer) -> Object:
    """Tokens, as OpenAI counts them."""
    tokens = answer.tokens
    return {
        "prompt_tokens": tokens.prompt,
        "prompt_tokens_details": {"cached_tokens": tokens.reused},
        "completion_tokens": tokens.new,
        "total_tokens": tokens.prompt + tokens.new,
    }


def notes(answer: Answer) -> Object:
    """What the user should know about the answer, where there is something."""
    return {"warnings": list(answer.warnings)} if answer.warnings else {}


@router.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    """The next message of a chat."""
    body = await _body(request)
    fields = read_fields(ChatFields, body)
    model = shared_of(request).served.writer(fields.model)
    messages = [message.model_dump() for message in fields.messages]
    limit = fields.max_completion_tokens or fields.max_tokens
    shape = ChatShape(fields.model, f"chatcmpl-{uuid.uuid4().hex}")
    encode = partial(model.encode_chat, messages)
    return await _write(request, fields, model, encode, limit, shape)


@router.post("/v1/completions")
async def complete(request: Request) -> Response:
    """The continuation of a text."""
    body = await _body(request)
    fields = read_fields(CompletionFields, body)
    model = shared_of(request).served.writer(fields.model)
    limit = fields.max_tokens or _COMPLETION_TOKENS
    shape = CompletionShape(fields.model, f"cmpl-{uuid.uuid4().hex}")
    return await _write(request, fields, model, partial(model.encode, fields.prompt), limit, shape)


async def _body(request: Request) -> bytes:
    shared = shared_of(request)
    shared.worker.check_open()
    return await read_body(request, _MOST_BODY_BYTES, shared.config.idle_s)


def _options(fields: WritingFields, limit: int | None) -> TextOptions:
    asked = {} if limit is None else {"max_new_tokens": limit}
    return TextOptions(
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k,
        repetition_penalty=fields.repetition_penalty,
        seed=fields.seed,
        **asked,
    )


async def _write(
    request: Request,
    fields: WritingFields,
    model: TextModel,
    encode: Callable[[], Sequence[int]],
    limit: int | None,
    shape: Shape,
) -> Response:
    """The response; the place is free once it has been sent, or nobody waits for it."""
    shared = shared_of(request)
    options = _options(fields, limit)
    place = shared.worker.reserve(fields.model)
    channel = Channel(request.receive)

    def close() -> None:
        place.close()
        channel.close()

    try:
        prompt_ids = await asyncio.to_thread(encode)
        place.submit(WritingTask(channel.tell, model, prompt_ids, options, fields.stop))
        return await _answer(shared, channel, place, fields, shape, close)
    except BaseException:
        close()
        raise


async def _answer(
    shared: Shared,
    channel: Channel,
    place: Place,
    fields: WritingFields,
    shape: Shape,
    close: Callable[[], None],
) -> Response:
    def count(answer: Answer) -> None:
        tokens = answer.tokens
        shared.metrics.wrote(place.lane.name, tokens.prompt, tokens.reused, tokens.new)

    if fields.stream:
        first = await channel.next()  # so that what fails at once has its own status
        events = _events(channel, first, shape, fields.with_usage, count)
        return EventStream(events, close, shared.failed, shared.metrics.disconnected.inc)
    answer: Answer = await channel.result()
    count(answer)
    close()
    return JSONResponse(shape.whole(answer))


async def _events(
    channel: Channel,
    first: Update | None,
    shape: Shape,
    with_usage: bool,
    count: Callable[[Answer], None],
) -> AsyncIterator[bytes]:
    for value in shape.beginning():
        yield event(value)
    update = first
    while update is not None:
        yield event(shape.part(update.value))
        update = await channel.next()
    answer: Answer = await channel.result()
    count(answer)
    yield event(shape.end(answer.finish_reason))
    if with_usage:
        yield event(shape.usage_event(answer))
    yield DONE
