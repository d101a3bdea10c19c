"""Write docs/cli.md from the help texts of the command line: `make docs`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from stapes.cli.root import root

TARGET = Path(__file__).with_name("cli.md")
WIDTH = 92

HEAD = """# Command line

Written by `make docs` from the commands' own help; a test compares the two.
"""


def render() -> str:
    """The whole of docs/cli.md."""
    context = _context(root, "stapes")
    sections = [HEAD, *(f"\n## {title}\n\n```\n{text}\n```\n" for title, text in _helps(context))]
    return "".join(sections)


def _helps(context: click.Context) -> Iterator[tuple[str, str]]:
    yield "stapes", root.get_help(context)
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        if command is not None:
            yield f"stapes {name}", command.get_help(_context(command, name, context))


def _context(
    command: click.Command, name: str, parent: click.Context | None = None
) -> click.Context:
    settings = command.context_settings
    return click.Context(command, parent, info_name=name, terminal_width=WIDTH, **settings)


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
