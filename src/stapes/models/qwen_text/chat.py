"""Messages to ids, by the chat template that a model comes with.

The template writes text with control tokens spelled out. Only those that it wrote itself become
control tokens; a name in a message stays text, whatever the template does with it (see
`marking`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateSyntaxError

from stapes.errors import ConfigError, RequestError
from stapes.models.qwen_text.marking import names_pattern, unused_sign
from stapes.models.qwen_text.sandbox import (
    LimitError,
    RefusedError,
    compile_template,
    make_sandbox,
    render,
)
from stapes.text.tokenizer import Tokenizer

Message = Mapping[str, Any]


class ChatTemplate:
    """A chat template that is ready for messages. May be used from several threads.

    Args:
        source: the template, in Jinja2.
        tokenizer: of the model; its control tokens are those that the template may write.
        bos_token: name of the token that begins a text, or None.

    Raises:
        ConfigError: the template is not well formed.
    """

    def __init__(self, source: str, tokenizer: Tokenizer, bos_token: str | None = None) -> None:
        self._source, self._tokenizer = source, tokenizer
        self._names = names_pattern(tokenizer.parts.control.values())
        self._special = {"bos_token": bos_token, "eos_token": tokenizer.eos_token}
        self._sandbox = make_sandbox()
        self._compiled = self._compile(self._sign_for(""))

    def encode(self, messages: Sequence[Message], system: str | None = None) -> list[int]:
        """The ids of a chat up to where its next answer begins.

        Args:
            messages: each with a "role" and a "content", both text; what else is in them must be
                what JSON can hold, and goes to the template.
            system: content of a message of the system in front of them.

        Raises:
            RequestError: the messages are malformed, or the template refuses them.
            ConfigError: the template fails, or exceeds its limits.
        """
        plain = check_messages(messages)
        if system is not None:
            if plain[0]["role"] == "system":
                raise RequestError("There are two system messages: one apart, one in messages.")
            plain = check_messages([{"role": "system", "content": system}, *plain])
        sign = self._sign_for(json.dumps(plain, ensure_ascii=False))
        compiled = self._compiled  # another thread may need another sign at the same time
        if compiled[0] != sign:
            compiled = self._compiled = self._compile(sign)
        return self._ids(self._render(compiled[1], plain, sign), sign)

    def _sign_for(self, text: str) -> str:
        sign = unused_sign(self._source, text)
        if sign is None:
            raise RequestError("The messages hold every character that Unicode keeps for itself.")
        return sign

    def _compile(self, sign: str) -> tuple[str, Template]:
        try:
            template = compile_template(self._sandbox, self._source, self._names, sign)
        except TemplateSyntaxError as error:
            raise ConfigError(
                f"The chat template of {self._tokenizer.parts.where} is malformed in line "
                f"{error.lineno}: {_sentence(error.message or error, sign)}."
            ) from error
        except Exception as error:
            raise self._failed(error, sign) from error
        return sign, template

    def _render(self, template: Template, messages: list[dict[str, Any]], sign: str) -> str:
        signed = {k: sign + v for k, v in self._special.items() if v is not None}
        variables = {
            "messages": messages,
            "add_generation_prompt": True,
            "tools": None,
            "documents": None,
            **signed,
        }
        try:
            return render(template, variables)
        except RefusedError as error:
            reason = _sentence(error, sign)
            raise RequestError(f"The chat template refuses the messages: {reason}.") from error
        except Exception as error:  # a template can do wrong whatever Python can
            raise self._failed(error, sign) from error

    def _failed(self, error: Exception, sign: str) -> ConfigError:
        where = self._tokenizer.parts.where
        limited = isinstance(error, LimitError)
        reason = "exceeds its limits" if limited else "cannot be used"
        return ConfigError(f"The chat template of {where} {reason}: {_sentence(error, sign)}.")

    def _ids(self, text: str, sign: str) -> list[int]:
        """Ids of what a template wrote: names with the sign are control tokens, the rest is text.

        A sign without a name is what a template left of one that it cut.
        """
        signed = re.compile(f"{sign}({self._names.pattern})")
        ids: list[int] = []
        end = 0
        for found in signed.finditer(text):
            ids += self._tokenizer.encode(text[end : found.start()].replace(sign, ""))
            ids.append(self._tokenizer.token_id(found[1]))
            end = found.end()
        return ids + self._tokenizer.encode(text[end:].replace(sign, ""))


def check_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A copy of the messages in plain dictionaries. RequestError when they are malformed."""
    if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
        raise RequestError('messages must be a list such as [{"role": "user", "content": "Hi"}].')
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise RequestError(f"Message {number} is no mapping, but {type(message).__name__}.")
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise RequestError(
                    f"Message {number} needs text as its {key!r}, not {message.get(key)!r:.80}."
                )
    try:
        copied = json.loads(json.dumps([dict(message) for message in messages]))
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"The messages hold what JSON cannot: {error}.") from error
    assert isinstance(copied, list)
    return copied


def _sentence(error: object, sign: str) -> str:
    """What went wrong, in one line without a full stop."""
    text = " ".join(str(error).replace(sign, "").split()).rstrip(".")
    return text[:300] or type(error).__name__
