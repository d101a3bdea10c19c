"""Running chat templates, which come with a model's files: Jinja2's sandbox, and limits.

What a template can use is what transformers gives it (transformers/utils/chat_template_utils.py),
so that a template that works there works here. A template has a few seconds and some megabytes;
the clock is looked at in every round of a loop and in every call of a macro, sizes where text is
added, repeated or written.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from stapes.models.qwen_text.marking import mark_names

MAX_SECONDS = 5.0
MAX_CHARACTERS = 1 << 24
_MAX_EXPONENT = 64

_TICK, _JOIN = "stapes_tick", "stapes_join"  # names that the template is given


class LimitError(TemplateError):
    """A template takes too long or writes too much."""


class RefusedError(TemplateError):
    """What a template's `raise_exception` raises: the messages do not suit it."""


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "*", "**"])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and right > _MAX_EXPONENT:
            raise LimitError(f"it computes a power of {right}")
        sizes = [len(part) for part in (left, right) if isinstance(part, str | list | tuple)]
        if operator == "+" and sizes:
            _check_size(sum(sizes))
        counts = [part for part in (left, right) if isinstance(part, int)]
        if operator == "*" and sizes and counts:
            _check_size(sizes[0] * counts[0])
        return super().call_binop(context, operator, left, right)


class _Generation(Extension):
    """`{% generation %}` marks what training learns from; here its body is all there is to it."""

    tags = {"generation"}  # noqa: RUF012  (as the base class has it)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Namespace(Namespace):
    """Takes no names that begin with an underscore: those reach into Python."""

    def __init__(*args: Any, **values: Any) -> None:  # a value may be called self
        self, *others = args
        for name in dict(*others, **values):
            _check_name(name)
        Namespace.__init__(self, dict(*others, **values))

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def make_sandbox() -> ImmutableSandboxedEnvironment:
    """The environment of chat templates."""
    sandbox = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
    sandbox.filters["tojson"] = _to_json
    sandbox.globals["raise_exception"] = _raise_exception
    sandbox.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    sandbox.globals["namespace"] = _Namespace
    del sandbox.globals["lipsum"]  # any amount of text, of no use here
    return sandbox


def compile_template(
    sandbox: ImmutableSandboxedEnvironment, source: str, names: re.Pattern[str], sign: str
) -> Template:
    """Compile a template with the sign in front of its control names, and with its limits.

    Raises:
        jinja2.TemplateError: it is not well formed.
    """
    tree = sandbox.parse(source)
    mark_names(tree, names, sign)
    parts: list[Any] = [*tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))]
    for part in parts:
        tick = nodes.Call(nodes.Name(_TICK, "load"), [], [], None, None)
        part.body.insert(0, nodes.ExprStmt(tick))
    _limit_joins(tree)
    tree.set_environment(sandbox)
    tree.set_lineno(1)  # of the nodes that were put in
    return sandbox.from_string(tree)


def render(template: Template, variables: Mapping[str, Any]) -> str:
    """What a template writes.

    Raises:
        LimitError: it takes longer than MAX_SECONDS or writes more than MAX_CHARACTERS.
        Exception: anything that a template can do wrong.
    """
    deadline = time.perf_counter() + MAX_SECONDS

    def tick() -> None:
        if time.perf_counter() > deadline:
            raise LimitError(f"it takes longer than {MAX_SECONDS:.0f} s")

    written, pieces = 0, []
    for piece in template.generate({**variables, _TICK: tick, _JOIN: _join}):
        tick()
        written += len(piece)
        _check_size(written)
        pieces.append(piece)
    return "".join(pieces)


def _limit_joins(node: nodes.Node) -> None:
    """`a ~ b` becomes a call that looks at sizes; the sandbox watches operators of numbers only."""
    for name, value in node.iter_fields():
        if isinstance(value, nodes.Concat):
            setattr(node, name, _joined(value))
        elif isinstance(value, list):
            value[:] = [_joined(v) if isinstance(v, nodes.Concat) else v for v in value]
    for child in node.iter_child_nodes():
        _limit_joins(child)


def _joined(concat: nodes.Concat) -> nodes.Call:
    return nodes.Call(nodes.Name(_JOIN, "load"), concat.nodes, [], None, None)


def _join(*parts: Any) -> str:
    texts = [str(part) for part in parts]
    _check_size(sum(map(len, texts)))
    return "".join(texts)


def _check_size(size: int) -> None:
    if size > MAX_CHARACTERS:
        raise LimitError(f"it writes more than {MAX_CHARACTERS} characters")


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no name such as {name!r}")


def _raise_exception(message: object) -> None:
    raise RefusedError(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers: not escaped for HTML, characters as they are."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
