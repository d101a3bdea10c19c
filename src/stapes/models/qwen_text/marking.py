"""Telling a chat template's own words from those that its user wrote.

A template writes control tokens by their names, into one string with the messages' text. So that
no message can hold one, every control name in the *source* of the template gets a sign in front,
a character that is nowhere in the template or the messages. What the template is given stays as it
is: it may trim, split, test and join that as it likes. In its output a name with the sign is a
control token, and a name without it is text.

A name that a template compares with, or splits or searches by, is left without the sign, since
what it is compared with has none. Where a template stores such a name in a variable first, or
builds a name of pieces, the outcome is plain text: the doubt is never in the user's favour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from jinja2 import nodes

# Methods and filters whose arguments are looked for in a text. `replace` looks for its first one.
_SEARCHING = {
    *("split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix"),
    *("startswith", "endswith", "find", "rfind", "index", "rindex", "count"),
    *("strip", "lstrip", "rstrip", "trim"),
}

# Private use: the basic plane's, then the two planes'. Real texts use a few of them at most.
_SIGNS = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


def unused_sign(*texts: str) -> str | None:
    """A character of private use that none of the texts holds; None when they hold all of them."""
    used = set().union(*texts)
    return next((chr(code) for signs in _SIGNS for code in signs if chr(code) not in used), None)


def names_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Matches the longest of the names at a place; never when there are none."""
    ordered = sorted(filter(None, names), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered)) or r"(?!)")


def mark_names(node: nodes.Node, names: re.Pattern[str], sign: str) -> None:
    """Put the sign in front of every control name that a parsed template writes."""
    if isinstance(node, nodes.TemplateData):
        node.data = names.sub(lambda found: sign + found[0], node.data)
    elif isinstance(node, nodes.Const) and isinstance(node.value, str):
        node.value = names.sub(lambda found: sign + found[0], node.value)
    searched = {id(child) for child in _searched(node)}
    for child in node.iter_child_nodes():
        if id(child) not in searched:
            mark_names(child, names, sign)


def _searched(node: nodes.Node) -> list[nodes.Node]:
    """The parts of a node that are compared with something or looked for in it, not written."""
    if isinstance(node, nodes.Compare):
        return [node.expr, *node.ops]
    if isinstance(node, nodes.Test):
        return [*node.iter_child_nodes()]
    if isinstance(node, nodes.Getitem):
        return [node.arg]
    if isinstance(node, nodes.Pair):
        return [node.key]
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
        return _searched_arguments(node.node.attr, node.args)
    if isinstance(node, nodes.Filter):
        return _searched_arguments(node.name, node.args)
    return []


def _searched_arguments(name: str, arguments: list[nodes.Expr]) -> list[nodes.Node]:
    if name == "replace":
        return [*arguments[:1]]
    return [*arguments] if name in _SEARCHING else []
