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
    helps = _helps(root, _context(root, "stapes"))
    sections = [HEAD, *(f"\n## {title}\n\n```\n{text}\n```\n" for title, text in helps)]
    return "".join(sections)


def _helps(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """The command's help, then that of its subcommands."""
    yield context.command_path, command.get_help(context)
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if inner is not None:
            yield from _helps(inner, _context(inner, name, context))


def _context(
    command: click.Command, name: str, parent: click.Context | None = None
) -> click.Context:
    settings = command.context_settings
    return click.Context(command, parent, info_name=name, terminal_width=WIDTH, **settings)


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
